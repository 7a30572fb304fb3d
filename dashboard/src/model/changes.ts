/** Who changed an object last, and what, from its managed fields. */

import type { ManagedField } from "../api/objects";

export interface Change {
  manager: string;
  operation: string;
  subresource: string;
  time: string;
  fields: string;
}

const FIELDS_NAMED = 4;

/** Return the changes of people and programs; those of a status are what controllers observe. */
export function changesOf(fields: ManagedField[]): Change[] {
  return fields
    .filter((each) => each.time && each.subresource !== "status")
    .map((each) => ({
      manager: each.manager ?? "",
      operation: each.operation ?? "",
      subresource: each.subresource ?? "",
      time: each.time ?? "",
      fields: namesOf(each.fieldsV1),
    }));
}

/** Return the paths that a set of fields names, as people write them: spec.replicas, metadata.labels. */
function namesOf(fields: Record<string, unknown> | undefined): string {
  const names: string[] = [];
  for (const [top, below] of Object.entries(fields ?? {})) {
    if (!top.startsWith("f:") || top === "f:status") continue;
    const inner = Object.keys((below as Record<string, unknown>) ?? {}).filter((each) => each.startsWith("f:"));
    for (const each of inner) names.push(`${top.slice(2)}.${each.slice(2)}`);
  }
  const more = names.length - FIELDS_NAMED;
  return names.slice(0, FIELDS_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
