/** The rows of the fleet: sets, pools and warm pools with their machines, claims, and machines on their own. */

import type { World } from "../api/cluster";
import { KINDS } from "../api/kinds";
import { count, isTrue, list, text, type KubeObject } from "../api/objects";
import { countStates, imageOfVolumes, machinesOf, type Counts, type Machine } from "./machines";

export type SetKind = "sets" | "pools" | "warmPools";

export interface Row {
  key: string;
  kind: SetKind;
  namespace: string;
  name: string;
  object: KubeObject;
  desired: number;
  current: number;
  ready: number;
  isPaused: boolean;
  isLeaving: boolean;
  machines: readonly Machine[];
  counts: Counts;
  image: string;
  /** Members that run an older template; they take the new one at their next start. */
  outdated: number;
}

export interface Fleet {
  machines: ReadonlyMap<string, Machine>;
  sorted: readonly Machine[];
  rows: readonly Row[];
  single: readonly Machine[];
  claimed: readonly Machine[];
  counts: Counts;
}

export const NO_FLEET: Fleet = { machines: new Map(), sorted: [], rows: [], single: [], claimed: [], counts: {} };

const SET_KINDS: SetKind[] = ["sets", "pools", "warmPools"];
const NAMED: Record<string, SetKind> = {
  VirtualMachineInstanceReplicaSet: "sets",
  VirtualMachinePool: "pools",
  VirtualMachineWarmPool: "warmPools",
};

const COLLATOR = new Intl.Collator(undefined, { numeric: true });

export function byName(one: { namespace: string; name: string }, other: { namespace: string; name: string }): number {
  return COLLATOR.compare(one.namespace, other.namespace) || COLLATOR.compare(one.name, other.name);
}

/** Return the fleet of a world; rows and machines that have not changed are those of `before`. */
export function fleetOf(world: World, before: Fleet): Fleet {
  const machines = machinesOf(world, before.machines);
  const sorted = sortedMachines(machines, before);
  const members = new Map<string, Machine[]>();
  const single: Machine[] = [];
  const claimed: Machine[] = [];
  for (const machine of sorted) {
    const kind = machine.owner && NAMED[machine.owner.kind];
    if (kind && machine.owner) append(members, rowKey(kind, machine.namespace, machine.owner.name), machine);
    else if (machine.owner?.kind === "VirtualMachineClaim") claimed.push(machine);
    else single.push(machine);
  }
  const rows = SET_KINDS.flatMap((kind) =>
    world[kind].items.map((object) => rowOf(kind, object, members.get(rowKey(kind, object.metadata.namespace ?? "", object.metadata.name)) ?? [], before)),
  ).sort((one, other) => SET_KINDS.indexOf(one.kind) - SET_KINDS.indexOf(other.kind) || byName(one, other));
  return { machines, sorted, rows, single, claimed, counts: countStates(sorted) };
}

/** Sorting a thousand names takes longer than looking whether it is needed. */
function sortedMachines(machines: Map<string, Machine>, before: Fleet): Machine[] {
  const isSame = machines.size === before.sorted.length && before.sorted.every((each) => machines.has(each.key));
  if (isSame) return before.sorted.map((each) => machines.get(each.key) ?? each);
  return [...machines.values()].sort(byName);
}

function append(map: Map<string, Machine[]>, key: string, machine: Machine): void {
  const found = map.get(key);
  if (found) found.push(machine);
  else map.set(key, [machine]);
}

export function rowKey(kind: SetKind, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

function rowOf(kind: SetKind, object: KubeObject, machines: Machine[], before: Fleet): Row {
  const namespace = object.metadata.namespace ?? "";
  const key = rowKey(kind, namespace, object.metadata.name);
  const last = before.rows.find((each) => each.key === key);
  if (last && last.object === object && isSameList(last.machines, machines)) return last;
  return {
    key,
    kind,
    namespace,
    name: object.metadata.name,
    object,
    desired: count(object, ["spec", "replicas"], 1),
    current: count(object, ["status", "replicas"]),
    ready: count(object, ["status", "readyReplicas"]),
    isPaused: (object.spec as { paused?: boolean } | undefined)?.paused === true || isTrue(object, "ReplicaPaused"),
    isLeaving: object.metadata.deletionTimestamp !== undefined,
    machines: last && isSameList(last.machines, machines) ? last.machines : machines,
    counts: countStates(machines),
    image: imageOfVolumes(volumesOf(kind, object)),
    outdated: machines.filter((each) => each.isOutdated).length,
  };
}

function isSameList(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((each, index) => each === other[index]);
}

function volumesOf(kind: SetKind, object: KubeObject): unknown[] {
  if (kind === "pools") return list(object, "spec", "virtualMachineTemplate", "spec", "template", "spec", "volumes");
  return list(object, "spec", "template", "spec", "volumes");
}

/** Return the pool that a warm pool keeps a checkpoint for; empty if it keeps machines. */
export function poolOf(row: Row): string {
  const isPool = text(row.object, "spec", "targetRef", "kind") === KINDS.pools.kind;
  return row.kind === "warmPools" && isPool ? text(row.object, "spec", "targetRef", "name") : "";
}

/** Return the kind of the page that an owner reference names. */
export function setKindOf(kind: string): SetKind | undefined {
  return NAMED[kind];
}
