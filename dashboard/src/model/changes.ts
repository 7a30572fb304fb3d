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
const DASHBOARD = "dashboard";
/** The server's limit; it accepts printable characters only. */
const MANAGER_CHARACTERS = 128;

/** Return the field manager of what a user changes by this page. */
export function managerOf(user: string): string {
  const name = user ? `${DASHBOARD}:${user}` : DASHBOARD;
  return [...name].map((each) => (/[\p{L}\p{N}\p{P}\p{S}]/u.test(each) ? each : "_")).join("").slice(0, MANAGER_CHARACTERS);
}

/** Return a field manager as people read it. */
export function describeManager(manager: string): string {
  if (manager === DASHBOARD) return "the dashboard";
  return manager.startsWith(`${DASHBOARD}:`) ? `${manager.slice(DASHBOARD.length + 1)}, by the dashboard` : manager;
}

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
