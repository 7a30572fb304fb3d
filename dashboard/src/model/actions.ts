/** What can be done to machines and sets: the request, the right that it needs, and the line of kubectl. Pure. */

import { pathOf, KINDS, type KindName } from "../api/kinds";
import { condition, isCordoned, isTrue, text, type KubeObject } from "../api/objects";
import type { Row } from "./fleet";
import type { Machine } from "./machines";
import { Rights, type Deed } from "./rights";
import { yamlOf } from "./yaml-lines";

export interface Request {
  method: string;
  path: string;
  body?: unknown;
  type?: string;
}

export interface Action {
  id: string;
  label: string;
  /** What has been done, for the message afterwards. */
  done: string;
  deed: Deed;
  namespace: string;
  command: string;
  request: Request;
  /** Why it cannot be done at present; absent where it can. */
  unavailable?: string;
  /** What the user is asked first; absent where the action takes nothing away. */
  confirm?: { title: string; warning: string; goes: readonly string[] };
  /** Takes it back. */
  undo?: Action;
}

const MERGE = "application/merge-patch+json";
const SUBRESOURCES = "subresources.kubevirt.io";

/** Return a word as a shell reads it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function kubectl(namespace: string, ...words: string[]): string {
  return ["kubectl", ...words.map(quoted), ...(namespace ? ["-n", quoted(namespace)] : [])].join(" ");
}

function virtctl(namespace: string, ...words: string[]): string {
  return ["virtctl", ...words.map(quoted), "-n", quoted(namespace)].join(" ");
}

/** Return the line that creates an object. */
function createObjectCommand(body: unknown): string {
  return createCommand(yamlOf(body));
}

/** Return the line that creates an object from its YAML. No line of the YAML ends it: the rest would be commands. */
export function createCommand(yaml: string): string {
  // Terminals make a line of a carriage return that is pasted.
  const lines = new Set(yaml.split(/[\r\n]/));
  let end = "EOF";
  for (let number = 1; lines.has(end); number += 1) end = `EOF${number}`;
  return `kubectl create -f - <<'${end}'\n${yaml.trimEnd()}\n${end}`;
}

type Power = "pause" | "unpause" | "softreboot" | "start" | "stop" | "restart" | "migrate";

const WORDS: Record<Power, [label: string, done: string]> = {
  pause: ["Pause", "Paused"],
  unpause: ["Unpause", "Unpaused"],
  softreboot: ["Reboot guest", "Asked the guest to reboot:"],
  start: ["Start", "Started"],
  stop: ["Stop", "Stopped"],
  restart: ["Restart", "Restarted"],
  migrate: ["Migrate", "Began to migrate"],
};

function power(machine: Machine, verb: Power, plural: "virtualmachines" | "virtualmachineinstances"): Action {
  const { namespace, name } = machine;
  const [label, done] = WORDS[verb];
  const words = verb === "pause" || verb === "unpause" ? [verb, "vmi", name] : [verb === "softreboot" ? "soft-reboot" : verb, name];
  return {
    id: verb,
    label,
    done: `${done} ${name}`,
    deed: { verb: "update", group: SUBRESOURCES, resource: `${plural}/${verb}`, name },
    namespace,
    command: virtctl(namespace, ...words),
    request: {
      method: "PUT",
      path: `/apis/${SUBRESOURCES}/v1/namespaces/${encodeURIComponent(namespace)}/${plural}/${encodeURIComponent(name)}/${verb}`,
      body: {},
    },
  };
}

/** Return what can be done to a machine in its state; `nodes` are those that the user may see. */
export function machineActions(machine: Machine, nodes: readonly KubeObject[] = []): Action[] {
  const { vm, vmi, state } = machine;
  const runs = ["ready", "unready", "paused", "migrating"].includes(state);
  const actions: Action[] = [];
  if (vm && !vmi) actions.push(power(machine, "start", "virtualmachines"));
  if (vm && vmi) {
    actions.push(asking(power(machine, "restart", "virtualmachines"), `Restart ${machine.name}?`, "The guest is shut down and starts again, with the newest template."));
    actions.push(asking(power(machine, "stop", "virtualmachines"), `Stop ${machine.name}?`, stopWarning(machine)));
  }
  if (runs && state !== "migrating") {
    const pause = power(machine, "pause", "virtualmachineinstances");
    const unpause = power(machine, "unpause", "virtualmachineinstances");
    actions.push(state === "paused" ? { ...unpause, undo: pause } : { ...pause, undo: unpause });
  }
  if (state === "ready" || state === "unready") {
    actions.push(power(machine, "softreboot", "virtualmachineinstances"));
    actions.push({ ...migrate(machine), unavailable: whyNotMigratable(machine, nodes) });
  }
  return actions;
}

function whyNotMigratable(machine: Machine, nodes: readonly KubeObject[]): string | undefined {
  const found = condition(machine.vmi, "LiveMigratable");
  if (found?.status === "False") return found.message || found.reason;
  const others = nodes.filter((each) => each.metadata.name !== machine.node && isTrue(each, "Ready") && !isCordoned(each));
  return nodes.length > 0 && others.length === 0 ? "No other node is ready for it: a migration needs one (corral join)." : undefined;
}

function stopWarning(machine: Machine): string {
  const strategy = text(machine.vm, "spec", "runStrategy");
  return strategy === "Always" || strategy === "RerunOnFailure"
    ? "The guest is shut down; the VirtualMachine stays, and its run strategy becomes Halted."
    : "The guest is shut down; the VirtualMachine stays.";
}

function asking(action: Action, title: string, warning: string): Action {
  return { ...action, confirm: { title, warning, goes: [] } };
}

function migrate(machine: Machine): Action {
  if (machine.vm) return power(machine, "migrate", "virtualmachines");
  const { namespace, name } = machine;
  const body = {
    apiVersion: "kubevirt.io/v1",
    kind: KINDS.migrations.kind,
    metadata: { generateName: `${name}-`, namespace },
    spec: { vmiName: name },
  };
  return {
    id: "migrate",
    label: "Migrate",
    done: `Began to migrate ${name}`,
    deed: { verb: "create", group: KINDS.migrations.group, resource: KINDS.migrations.plural },
    namespace,
    command: createObjectCommand(body),
    request: { method: "POST", path: pathOf(KINDS.migrations, "v1", namespace), body },
  };
}

/** Return the deletion of a machine: of its VirtualMachine where there is one. */
export function deleteMachine(machine: Machine): Action {
  const kind: KindName = machine.vm ? "vms" : "vmis";
  const { name, namespace } = machine;
  const action = deletion(kind, pathOf(KINDS[kind], "v1", namespace, name), namespace, name);
  const replaced = machine.owner && !machine.owner.kind.includes("Claim");
  const warning = replaced
    ? `It belongs to ${machine.owner?.name}, which creates another one in its place.`
    : "Its guest is shut down, and its ephemeral disks are lost.";
  return { ...action, confirm: { title: `Delete ${name}?`, warning, goes: [] } };
}

function deletion(kind: KindName, path: string, namespace: string, name: string): Action {
  const { plural, group, short } = KINDS[kind];
  return {
    id: "delete",
    label: "Delete",
    done: `Deleted ${name}`,
    deed: { verb: "delete", group, resource: plural, name },
    namespace,
    command: kubectl(namespace, "delete", short, name),
    request: { method: "DELETE", path },
  };
}

/** Return the deletion of a set, with the machines that go with it. */
export function deleteRow(row: Row, path: string): Action {
  const action = deletion(row.kind, path, row.namespace, row.name);
  const goes = row.machines.map((each) => each.name);
  const number = goes.length === 1 ? "its machine goes" : `its ${goes.length} machines go`;
  const warning = goes.length ? `With it ${number}: guests are shut down, and ephemeral disks are lost.` : "It has no machines.";
  return { ...action, confirm: { title: `Delete ${KINDS[row.kind].title} ${row.name}?`, warning, goes } };
}

/** Return the deletion of an object that has no machines of its own. */
export function deleteObject(kind: KindName, object: KubeObject, path: string, warning: string): Action {
  const { name, namespace = "" } = object.metadata;
  return { ...deletion(kind, path, namespace, name), confirm: { title: `Delete ${KINDS[kind].title} ${name}?`, warning, goes: [] } };
}

/** Return the change of a set's number of machines, and what takes it back.
 *
 * KubeVirt's role "edit" may patch sets, but not their subresource scale: `rights` choose which is written.
 */
export function scale(row: Row, path: string, replicas: number, rights = Rights.unknown()): Action {
  const action = (number: number) => {
    const byScale = scaleAction(row, path, number);
    const byPatch = patchReplicas(row, path, number);
    return rights.allows(byScale.deed) || !rights.allows(byPatch.deed) ? byScale : byPatch;
  };
  return { ...action(replicas), undo: action(row.desired) };
}

function patchReplicas(row: Row, path: string, replicas: number): Action {
  const { plural, group, short } = KINDS[row.kind];
  const body = { spec: { replicas } };
  return {
    ...scaleAction(row, path, replicas),
    deed: { verb: "patch", group, resource: plural, name: row.name },
    command: kubectl(row.namespace, "patch", short, row.name, "--type=merge", "-p", JSON.stringify(body)),
    request: { method: "PATCH", path, type: MERGE, body },
  };
}

function scaleAction(row: Row, path: string, replicas: number): Action {
  const { plural, group } = KINDS[row.kind];
  return {
    id: "scale",
    label: "Scale",
    done: `Scaled ${row.name} to ${replicas}`,
    deed: { verb: "patch", group, resource: `${plural}/scale`, name: row.name },
    namespace: row.namespace,
    command: kubectl(row.namespace, "scale", KINDS[row.kind].short, row.name, `--replicas=${replicas}`),
    request: { method: "PATCH", path: `${path}/scale`, type: MERGE, body: { spec: { replicas } } },
  };
}

/** Return the pause of a set's controller, or its end; undefined of warm pools, which have none. */
export function pauseRow(row: Row, path: string, isPaused: boolean): Action | undefined {
  if (row.kind === "warmPools") return undefined;
  return { ...pauseAction(row, path, isPaused), undo: pauseAction(row, path, !isPaused) };
}

function pauseAction(row: Row, path: string, isPaused: boolean): Action {
  const { plural, group, short } = KINDS[row.kind];
  const body = { spec: { paused: isPaused } };
  return {
    id: isPaused ? "pause" : "unpause",
    label: isPaused ? "Pause" : "Resume",
    done: `${isPaused ? "Paused" : "Resumed"} ${row.name}`,
    deed: { verb: "patch", group, resource: plural, name: row.name },
    namespace: row.namespace,
    command: kubectl(row.namespace, "patch", short, row.name, "--type=merge", "-p", JSON.stringify(body)),
    request: { method: "PATCH", path, type: MERGE, body },
  };
}

/** Return the creation of an object of a kind, whose version is that of its body. */
function creation(kind: KindName, namespace: string, body: { apiVersion: string }, words: Pick<Action, "id" | "label" | "done">): Action {
  const { group, plural } = KINDS[kind];
  const version = body.apiVersion.split("/").at(-1) ?? "v1";
  return {
    ...words,
    deed: { verb: "create", group, resource: plural },
    namespace,
    command: createObjectCommand(body),
    request: { method: "POST", path: pathOf(KINDS[kind], version, namespace), body },
  };
}

/** Return the claim of one machine of a warm pool. */
export function claim(row: Row, ttl: string): Action {
  const body = {
    apiVersion: "corral.dev/v1alpha1",
    kind: KINDS.claims.kind,
    metadata: { generateName: `${row.name}-`, namespace: row.namespace },
    spec: { warmPoolRef: { name: row.name }, ...(ttl ? { ttl } : {}) },
  };
  return creation("claims", row.namespace, body, { id: "claim", label: "Claim a machine", done: `Claimed a machine of ${row.name}` });
}

/** Return the checkpoint of a running machine, of which forks are made. */
export function checkpoint(machine: Machine): Action {
  const body = {
    apiVersion: "corral.dev/v1alpha1",
    kind: KINDS.checkpoints.kind,
    metadata: { generateName: `${machine.name}-`, namespace: machine.namespace },
    spec: { source: { kind: KINDS.vmis.kind, name: machine.name } },
  };
  return creation("checkpoints", machine.namespace, body, { id: "checkpoint", label: "Checkpoint", done: `Began a checkpoint of ${machine.name}` });
}

/** Return a machine that starts from a complete checkpoint, by its name, instead of booting. */
export function fork(source: KubeObject, from: string): Action {
  const spec = structuredClone(source.spec) as Record<string, unknown>;
  delete spec.hostname;
  const firmware = (spec.domain as { firmware?: Record<string, unknown> } | undefined)?.firmware;
  // Two machines with one uuid or serial number would be one machine to their users.
  delete firmware?.uuid;
  delete firmware?.serial;
  const { name, namespace = "" } = source.metadata;
  const body = {
    apiVersion: source.apiVersion ?? "kubevirt.io/v1",
    kind: KINDS.vmis.kind,
    metadata: {
      generateName: `${name}-`,
      namespace,
      // The server fills in the checkpoint's node and identity.
      annotations: { "corral.dev/start-from": from },
    },
    spec,
  };
  return creation("vmis", namespace, body, { id: "fork", label: "Fork", done: `Created a fork of ${name}` });
}
