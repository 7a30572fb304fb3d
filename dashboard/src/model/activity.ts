/** Who did what, when, and why: events, and changes of specs from managed fields, the newest first. Pure. */

import type { Trimmed, World } from "../api/cluster";
import { KINDS, kindNamed, type KindName } from "../api/kinds";
import type { KubeEvent, KubeObject } from "../api/objects";
import { describeManager } from "./changes";
import { setKindOf } from "./fleet";
import { href } from "./routes";
import { lastTime } from "./timeline";

export interface Entry {
  key: string;
  time: number;
  /** Who: a controller, a node's agent, or the client that changed an object. */
  who: string;
  kind: string;
  namespace: string;
  name: string;
  reason: string;
  message: string;
  isWarning: boolean;
  isChange: boolean;
  count: number;
  link: string;
}

const CHANGED: KindName[] = ["sets", "pools", "vms", "vmis", "warmPools", "claims", "checkpoints", "migrations", "dataVolumes"];
/** Managers whose changes of an object are what its events say already. */
const CONTROLLERS = /^(virt-|corral|cdi-|kube-controller-manager|kube-scheduler|kubelet)/;

export function activityOf(world: World, before: Map<string, Entry>): Entry[] {
  const entries: Entry[] = [];
  for (const event of world.events.items) entries.push(ofEvent(event as KubeEvent, before));
  for (const name of CHANGED)
    for (const object of world[name].items) entries.push(...ofChanges(name, object as Trimmed));
  entries.sort((one, other) => other.time - one.time || one.key.localeCompare(other.key));
  before.clear();
  for (const entry of entries) before.set(entry.key, entry);
  return entries;
}

function ofEvent(event: KubeEvent, before: Map<string, Entry>): Entry {
  const key = `event/${event.metadata.namespace}/${event.metadata.name}/${event.metadata.resourceVersion}`;
  const known = before.get(key);
  if (known) return known;
  const { kind = "", name = "", namespace = "" } = event.involvedObject ?? {};
  return {
    key,
    time: lastTime(event),
    who: event.reportingComponent || event.source?.component || "",
    kind,
    namespace,
    name,
    reason: event.reason ?? "",
    message: event.message ?? event.note ?? "",
    isWarning: event.type === "Warning",
    isChange: false,
    count: event.series?.count ?? event.count ?? 1,
    link: linkTo(kind, namespace, name),
  };
}

function ofChanges(kind: KindName, object: Trimmed): Entry[] {
  const { name, namespace = "", creationTimestamp = "" } = object.metadata;
  return (object.changes ?? [])
    .filter((each) => !CONTROLLERS.test(each.manager))
    .map((each) => {
      const created = each.time === creationTimestamp;
      const verb = created ? "Created" : each.subresource === "scale" ? "Scaled" : each.operation === "Apply" ? "Applied" : "Changed";
      return {
        key: `change/${kind}/${namespace}/${name}/${each.manager}/${each.operation}/${each.subresource}/${each.time}`,
        time: Date.parse(each.time),
        who: describeManager(each.manager),
        kind: KINDS[kind].kind,
        namespace,
        name,
        reason: verb,
        message: created ? `Created with ${each.fields || "its defaults"}` : withReplicas(each.fields, object),
        isWarning: false,
        isChange: true,
        count: 1,
        link: linkTo(KINDS[kind].kind, namespace, name),
      };
    });
}

/** Add the number to which a set is scaled now: managed fields have names of fields, not their values. */
function withReplicas(fields: string, object: KubeObject): string {
  const replicas = (object.spec as { replicas?: number } | undefined)?.replicas;
  return fields.includes("spec.replicas") && replicas !== undefined ? `${fields} (now ${replicas})` : fields;
}

/** Return the view of an object; empty for kinds that have none. */
export function linkTo(kind: string, namespace: string, name: string): string {
  const set = setKindOf(kind);
  if (set) return href("set", set, namespace, name);
  if (kind === "VirtualMachineInstance" || kind === "VirtualMachine") return href("machine", namespace, name);
  const launched = /^virt-launcher-(.+)-[a-z0-9]{5}$/.exec(name)?.[1];
  if (kind === "Pod" && launched) return href("machine", namespace, launched);
  if (kind === "Node") return href("nodes");
  if (kindNamed(kind) === "dataVolumes") return href("images");
  return "";
}

export interface Filter {
  text: string;
  only: "all" | "warnings" | "changes";
}

export function matchesFilter(entry: Entry, filter: Filter): boolean {
  if (filter.only === "warnings" && !entry.isWarning) return false;
  if (filter.only === "changes" && !entry.isChange) return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const haystack = `${entry.kind} ${entry.namespace} ${entry.name} ${entry.reason} ${entry.message} ${entry.who}`.toLowerCase();
  return words.every((each) => haystack.includes(each));
}

/** Return whether an event is about a machine: its VMI, its VirtualMachine, its pods. */
export function isAbout(event: KubeEvent, namespace: string, name: string): boolean {
  const about = event.involvedObject;
  if (!about || (about.namespace ?? "") !== namespace) return false;
  if (about.name === name) return about.kind === "VirtualMachineInstance" || about.kind === "VirtualMachine";
  return about.kind === "Pod" && /^-[a-z0-9]{5}$/.test((about.name ?? "").replace(`virt-launcher-${name}`, ""));
}
