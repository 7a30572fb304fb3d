/** Machines as people see them: a VMI, or a VirtualMachine that does not run, with one state. */

import { condition, conditions, controllerOf, isTrue, list, text, type KubeObject } from "../api/objects";
import type { World } from "../api/cluster";

/** The states of a machine, the most urgent first. */
export const STATES = ["failed", "waiting", "starting", "stopping", "migrating", "unready", "paused", "ready", "stopped", "done"] as const;
export type State = (typeof STATES)[number];

/** What each state means, for legends and screen readers. */
export const MEANING: Record<State, string> = {
  failed: "failed",
  waiting: "cannot start yet",
  starting: "starting",
  stopping: "stopping",
  migrating: "migrating",
  unready: "running, not ready",
  paused: "paused",
  ready: "ready",
  stopped: "stopped",
  done: "finished",
};

export interface Owner {
  kind: string;
  name: string;
}

export interface Machine {
  /** namespace/name */
  key: string;
  namespace: string;
  name: string;
  state: State;
  /** One line on the state: why it is so, where that is known. */
  detail: string;
  vmi: KubeObject | undefined;
  vm: KubeObject | undefined;
  /** The set, pool, warm pool or claim that it belongs to. */
  owner: Owner | undefined;
  node: string;
  address: string;
  created: string;
  /** Whether it runs an older template than its pool or VirtualMachine has. */
  isOutdated: boolean;
}

const REVISION = "kubevirt.io/vm-pool-revision-name";

/** Return all machines: every VMI, and VirtualMachines without one. Unchanged ones keep their identity. */
export function machinesOf(world: Pick<World, "vms" | "vmis">, before: ReadonlyMap<string, Machine>): Map<string, Machine> {
  const machines = new Map<string, Machine>();
  for (const [key, vmi] of world.vmis.byKey) machines.set(key, kept(before.get(key), vmi, world.vms.byKey.get(key)));
  for (const [key, vm] of world.vms.byKey)
    if (!machines.has(key)) machines.set(key, kept(before.get(key), undefined, vm));
  return machines;
}

function kept(before: Machine | undefined, vmi: KubeObject | undefined, vm: KubeObject | undefined): Machine {
  if (before && before.vmi === vmi && before.vm === vm) return before;
  return machineOf(vmi, vm);
}

export function machineOf(vmi: KubeObject | undefined, vm: KubeObject | undefined): Machine {
  const object = vmi ?? vm;
  if (!object) throw new Error("a machine is a VMI or a VirtualMachine");
  const { name, namespace = "" } = object.metadata;
  const [state, detail] = vmi ? stateOfVmi(vmi, vm) : stateOfVm(vm);
  return {
    key: `${namespace}/${name}`,
    namespace,
    name,
    state,
    detail,
    vmi,
    vm,
    owner: ownerOf(vmi, vm),
    node: text(vmi, "status", "nodeName"),
    address: text(list(vmi, "status", "interfaces")[0], "ipAddress"),
    created: object.metadata.creationTimestamp ?? "",
    isOutdated: isOutdated(vmi, vm),
  };
}

function ownerOf(vmi: KubeObject | undefined, vm: KubeObject | undefined): Owner | undefined {
  const controller = vm ? controllerOf(vm) : vmi && controllerOf(vmi);
  return controller && controller.kind !== "VirtualMachine" ? { kind: controller.kind, name: controller.name } : undefined;
}

function isOutdated(vmi: KubeObject | undefined, vm: KubeObject | undefined): boolean {
  if (!vmi || !vm) return false;
  if (isTrue(vm, "RestartRequired")) return true;
  const desired = vm.metadata.labels?.[REVISION];
  const running = vmi.metadata.labels?.[REVISION];
  return desired !== undefined && running !== undefined && desired !== running;
}

function stateOfVmi(vmi: KubeObject, vm: KubeObject | undefined): [State, string] {
  const phase = text(vmi, "status", "phase");
  if (phase === "Failed") return ["failed", reasonOf(vmi) || text(vmi, "status", "reason") || "the machine has ended with an error"];
  if (phase === "Succeeded") return ["done", "the guest has shut down"];
  if (vmi.metadata.deletionTimestamp) return ["stopping", "the machine is being stopped"];
  if (phase !== "Running") return stateBeforeRunning(vmi, vm);
  if (isTrue(vmi, "Paused")) return ["paused", condition(vmi, "Paused")?.message ?? ""];
  const migration = (vmi.status as { migrationState?: { startTimestamp?: string; completed?: boolean; targetNode?: string } } | undefined)?.migrationState;
  if (migration?.startTimestamp && !migration.completed) return ["migrating", `to ${migration.targetNode || "another node"}`];
  const ready = condition(vmi, "Ready");
  if (ready?.status === "True") return ["ready", ""];
  return ["unready", ready?.message || ready?.reason || "its readiness probe has not succeeded yet"];
}

const TRANSIENT = new Set(["GuestNotRunning", "PodNotExists", "PodTerminating", "PodConditionMissing"]);

function stateBeforeRunning(vmi: KubeObject, vm: KubeObject | undefined): [State, string] {
  const trouble = troubleOf(vmi);
  if (trouble) return ["waiting", trouble.message || trouble.reason || ""];
  const printable = text(vm, "status", "printableStatus");
  if (/Error|BackOff|Err/.test(printable)) return ["waiting", printable];
  return ["starting", text(vmi, "status", "phase") || "Pending"];
}

/** Return the condition that says why a machine does not start. */
export function troubleOf(object: KubeObject): { reason?: string; message?: string } | undefined {
  return conditions(object).find(
    (each) =>
      each.status === "False" &&
      ((each.type === "PodScheduled" && each.reason === "Unschedulable") ||
        (["Synchronized", "Provisioning", "DataVolumesReady"].includes(each.type) && each.reason && !TRANSIENT.has(each.reason))),
  );
}

function reasonOf(vmi: KubeObject): string {
  const named = conditions(vmi).find((each) => each.status === "False" && each.type !== "LiveMigratable" && each.message);
  return named?.message ?? "";
}

const STATE_OF_VM: Record<string, State> = {
  Stopped: "stopped", Halted: "stopped", Stopping: "stopping", Terminating: "stopping", Starting: "starting",
  Provisioning: "starting", WaitingForVolumeBinding: "starting", Paused: "paused", Migrating: "migrating", Running: "starting",
};

function stateOfVm(vm: KubeObject | undefined): [State, string] {
  if (vm?.metadata.deletionTimestamp) return ["stopping", "the machine is being deleted"];
  const printable = text(vm, "status", "printableStatus");
  const known = STATE_OF_VM[printable];
  if (known) return [known, printable];
  const failure = vm && conditions(vm).find((each) => each.type === "Failure" && each.status === "True");
  if (printable === "CrashLoopBackOff") return ["failed", failure?.message || "it ends again and again after it starts"];
  if (!printable || printable === "Unknown") return ["starting", printable];
  return ["waiting", failure?.message || printable];
}

export type Counts = Readonly<Partial<Record<State, number>>>;

export function countStates(machines: readonly Machine[]): Counts {
  const counts: Partial<Record<State, number>> = {};
  for (const { state } of machines) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/** Return how many machines are in which state, in words: 3 ready, 1 starting. */
export function describeCounts(counts: Counts): string {
  const parts = STATES.filter((each) => counts[each]).map((each) => `${counts[each]} ${MEANING[each]}`);
  return parts.join(", ") || "no machines";
}

/** Return the image or the volume that a machine starts from. */
export function imageOf(machine: Machine): string {
  const volumes = list(machine.vmi, "spec", "volumes").length
    ? list(machine.vmi, "spec", "volumes")
    : list(machine.vm, "spec", "template", "spec", "volumes");
  return imageOfVolumes(volumes);
}

export function imageOfVolumes(volumes: unknown[]): string {
  for (const each of volumes) {
    const image = text(each, "containerDisk", "image");
    if (image) return image;
  }
  for (const each of volumes) {
    const claim = text(each, "persistentVolumeClaim", "claimName") || text(each, "dataVolume", "name");
    if (claim) return `volume ${claim}`;
  }
  return "";
}
