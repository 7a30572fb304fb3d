import assert from "node:assert/strict";
import { test } from "node:test";
import type { World } from "../api/cluster";
import { KIND_NAMES, KINDS, pathOf } from "../api/kinds";
import type { KubeEvent, KubeObject } from "../api/objects";
import type { Snapshot } from "../api/store";
import { claim, createCommand, deleteMachine, deleteRow, fork, kubectl, machineActions, pauseRow, quoted, scale } from "./actions";
import { activityOf, isAbout, linkTo, matchesFilter } from "./activity";
import { changesOf, describeManager, managerOf } from "./changes";
import { blankForm, lineOfField, objectOf } from "./create";
import { fleetOf, NO_FLEET, poolOf } from "./fleet";
import { machineOf } from "./machines";
import { problemsOf } from "./problems";
import { bytes, parseQuantity, processors } from "./quantity";
import { NO_RIGHTS_KNOWN, Rights } from "./rights";
import { href, routeOf } from "./routes";
import { withoutOverrides } from "./texts";
import { age, duration } from "./time";
import { currentStage, eventMoment, timelineOf } from "./timeline";
import { recordUsage } from "./usage";
import { yamlOf } from "./yaml-lines";
import { parse } from "yaml";

function snapshot(items: KubeObject[]): Snapshot {
  const byKey = new Map(items.map((each) => [`${each.metadata.namespace}/${each.metadata.name}`, each]));
  return { phase: "live", error: "", byKey, items };
}

function world(parts: Partial<Record<(typeof KIND_NAMES)[number], KubeObject[]>>): World {
  const snapshots = Object.fromEntries(KIND_NAMES.map((each) => [each, snapshot(parts[each] ?? [])]));
  const rest = { namespace: "", namespaces: [], rights: NO_RIGHTS_KNOWN, user: "", serverVersion: "", usage: { machines: new Map(), nodes: new Map(), available: true } };
  return { ...snapshots, ...rest } as unknown as World;
}

function vmi(name: string, status: object, extra: object = {}): KubeObject {
  return { kind: "VirtualMachineInstance", metadata: { name, namespace: "default", creationTimestamp: "2026-01-01T00:00:00Z", ...extra }, spec: {}, status };
}

const READY = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
const BY_SET = { ownerReferences: [{ kind: "VirtualMachineInstanceReplicaSet", name: "web", uid: "1", controller: true }] };
const SET: KubeObject = { metadata: { name: "web", namespace: "default" }, spec: { replicas: 2 }, status: { replicas: 2, readyReplicas: 1 } };

function rowOf(set: KubeObject, members: KubeObject[] = []) {
  const [row] = fleetOf(world({ sets: [set], vmis: members }), NO_FLEET).rows;
  assert.ok(row);
  return row;
}

test("a machine's state is that of its VMI, or of its VirtualMachine where it does not run", () => {
  const state = (object?: KubeObject, vm?: KubeObject) => machineOf(object, vm).state;
  assert.equal(state(vmi("a", READY)), "ready");
  assert.equal(state(vmi("a", { phase: "Running", conditions: [] })), "unready");
  assert.equal(state(vmi("a", { phase: "Running", conditions: [{ type: "Paused", status: "True" }] })), "paused");
  assert.equal(state(vmi("a", { phase: "Running", migrationState: { startTimestamp: "2026-01-01T00:00:00Z" } })), "migrating");
  assert.equal(state(vmi("a", { phase: "Failed" })), "failed");
  assert.equal(state(vmi("a", { phase: "Succeeded" })), "done");
  assert.equal(state(vmi("a", {})), "starting");
  assert.equal(state(vmi("a", READY, { deletionTimestamp: "2026-01-01T00:00:00Z" })), "stopping");
  const waiting = { phase: "Scheduling", conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1 nodes are available" }] };
  assert.equal(state(vmi("a", waiting)), "waiting");
  const stopped: KubeObject = { metadata: { name: "a", namespace: "default" }, status: { printableStatus: "Stopped" } };
  assert.equal(state(undefined, stopped), "stopped");
  assert.equal(state(undefined, { ...stopped, status: { printableStatus: "CrashLoopBackOff" } }), "failed");
  assert.equal(state(undefined, { ...stopped, status: { printableStatus: "ErrorPvcNotFound" } }), "waiting");
});

test("a fleet has the members of each set, and keeps rows and machines that have not changed", () => {
  const first = world({ sets: [SET], vmis: [vmi("web-10", READY, BY_SET), vmi("web-9", READY, BY_SET), vmi("alone", READY)] });
  const fleet = fleetOf(first, NO_FLEET);
  assert.deepEqual(fleet.rows[0]?.machines.map((each) => each.name), ["web-9", "web-10"]);
  assert.deepEqual(fleet.single.map((each) => each.name), ["alone"]);
  const again = fleetOf({ ...first }, fleet);
  assert.equal(again.rows[0], fleet.rows[0]);
  assert.equal(again.machines.get("default/alone"), fleet.machines.get("default/alone"));
});

test("a member whose pool has a newer template is outdated", () => {
  const label = "kubevirt.io/vm-pool-revision-name";
  const vm: KubeObject = { metadata: { name: "a", namespace: "default", labels: { [label]: "p-2" } } };
  assert.equal(machineOf(vmi("a", READY, { labels: { [label]: "p-1" } }), vm).isOutdated, true);
  assert.equal(machineOf(vmi("a", READY, { labels: { [label]: "p-2" } }), vm).isOutdated, false);
});

test("problems say what is wrong and what to do, once for all members of a set", () => {
  const conditions = [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1 nodes are available: 1 Insufficient memory." }];
  const members = ["a", "b"].map((each) => vmi(each, { phase: "Scheduling", conditions }, BY_SET));
  const node: KubeObject = { metadata: { name: "n1" }, status: { conditions: [{ type: "Ready", status: "Unknown", message: "no report" }] } };
  const here = world({ sets: [SET], vmis: members, nodes: [node] });
  const problems = problemsOf(here, fleetOf(here, NO_FLEET));
  assert.deepEqual(problems.map((each) => each.title), ["2 machines of web cannot start: no node has enough free memory", "Node n1 is not ready"]);
  assert.match(problems[0]?.remedy ?? "", /corral join/);
  assert.equal(problems[0]?.link, href("set", "sets", "default", "web"));
});

test("a machine that fits no node says what it needs and what there is", () => {
  const message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
  const conditions = [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }];
  const node: KubeObject = { metadata: { name: "n1", labels: { gpu: "t4" } }, status: { allocatable: { memory: "22Gi" } } };
  const here = (spec: object, text = message) =>
    world({ vmis: [{ ...vmi("a", { phase: "Scheduling", conditions: [{ ...conditions[0], message: text }] }), spec }], nodes: [node] });
  const chosen = here({ nodeSelector: { gpu: "a100" } });
  const [problem] = problemsOf(chosen, fleetOf(chosen, NO_FLEET));
  assert.equal(problem?.title, "Machine a cannot start: no node has the label gpu=a100 of its nodeSelector");
  assert.match(problem?.remedy ?? "", /kubectl label node NAME gpu=a100/);
  const large = here({ domain: { memory: { guest: "500Gi" } } }, "1 Insufficient memory.");
  assert.equal(problemsOf(large, fleetOf(large, NO_FLEET))[0]?.title, "Machine a cannot start: it requests 500 GiB of memory, and the largest node has 22 GiB");
  const fits = here({ domain: { memory: { guest: "1Gi" } } }, "1 Insufficient memory.");
  assert.match(problemsOf(fits, fleetOf(fits, NO_FLEET))[0]?.title ?? "", /no node has enough free memory/);
});

test("a fork that has booted says so", () => {
  const booted = vmi("a", { phase: "Running", conditions: [{ type: "Ready", status: "True" }, { type: "Forked", status: "False", reason: "ForkFailed", message: "saved with other devices" }] });
  const here = world({ vmis: [booted] });
  const [problem] = problemsOf(here, fleetOf(here, NO_FLEET));
  assert.match(problem?.title ?? "", /could not start from its checkpoint/);
  assert.equal(problem?.reason, "saved with other devices");
});

test("an image that cannot be pulled is named", () => {
  const conditions = [{ type: "Synchronized", status: "False", reason: "ErrImagePull", message: "no such host" }];
  const broken = { ...vmi("a", { phase: "Scheduled", conditions }), spec: { volumes: [{ containerDisk: { image: "nowhere/x" } }] } };
  const here = world({ vmis: [broken] });
  assert.equal(problemsOf(here, fleetOf(here, NO_FLEET))[0]?.title, "Machine a cannot start: the image cannot be pulled (nowhere/x)");
});

test("nothing is wrong with a fleet that is well", () => {
  const here = world({ sets: [SET], vmis: [vmi("a", READY, BY_SET), vmi("b", { phase: "Pending" }, BY_SET)] });
  assert.deepEqual(problemsOf(here, fleetOf(here, NO_FLEET)), []);
});

test("scaling is taken back by the number before, and is a line of kubectl", () => {
  const action = scale(rowOf(SET), "/path", 5);
  assert.deepEqual(action.request.body, { spec: { replicas: 5 } });
  assert.equal(action.command, "kubectl scale vmirs web --replicas=5 -n default");
  assert.deepEqual(action.undo?.request.body, { spec: { replicas: 2 } });
  assert.equal(action.deed.resource, "virtualmachineinstancereplicasets/scale");
});

test("those who may patch a set, but not its subresource scale, scale it by a patch", () => {
  const rights = Rights.of({ status: { resourceRules: [{ verbs: ["patch"], apiGroups: ["kubevirt.io"], resources: ["virtualmachineinstancereplicasets"] }] } }, "default");
  const action = scale(rowOf(SET), "/path", 5, rights);
  assert.equal(action.request.path, "/path");
  assert.equal(action.undo?.request.path, "/path");
  assert.equal(action.command, `kubectl patch vmirs web --type=merge -p '{"spec":{"replicas":5}}' -n default`);
  assert.equal(scale(rowOf(SET), "/path", 5).request.path, "/path/scale");
});

test("the deletion of a set names the machines that go with it", () => {
  const action = deleteRow(rowOf(SET, [vmi("a", READY, BY_SET), vmi("b", READY, BY_SET)]), "/path");
  assert.deepEqual(action.confirm?.goes, ["a", "b"]);
  assert.equal(action.command, "kubectl delete vmirs web -n default");
});

test("pause is taken back; a warm pool has none", () => {
  assert.deepEqual(pauseRow(rowOf(SET), "/p", true)?.undo?.request.body, { spec: { paused: false } });
  const warm = { ...rowOf(SET), kind: "warmPools" as const };
  assert.equal(pauseRow(warm, "/p", true), undefined);
  assert.deepEqual(claim(warm, "10m").request.body, { apiVersion: "corral.dev/v1alpha1", kind: "VirtualMachineClaim", metadata: { generateName: "web-", namespace: "default" }, spec: { warmPoolRef: { name: "web" }, ttl: "10m" } });
});

test("a warm pool of a pool keeps a checkpoint and no machines", () => {
  const of = (kind: string) => ({ ...rowOf({ ...SET, spec: { targetRef: { kind, name: "lab" } } }), kind: "warmPools" as const });
  assert.equal(poolOf(of("VirtualMachinePool")), "lab");
  assert.equal(poolOf(of("VirtualMachineInstanceReplicaSet")), "");
  assert.equal(poolOf({ ...of("VirtualMachinePool"), kind: "sets" as const }), "");
});

test("what can be done to a machine follows its state", () => {
  const vm: KubeObject = { metadata: { name: "a", namespace: "default" }, status: { printableStatus: "Stopped" } };
  const ids = (object?: KubeObject, owner?: KubeObject) => machineActions(machineOf(object, owner)).map((each) => each.id);
  assert.deepEqual(ids(undefined, vm), ["start"]);
  assert.deepEqual(ids(vmi("a", READY), vm), ["restart", "stop", "pause", "softreboot", "migrate"]);
  assert.deepEqual(ids(vmi("a", { phase: "Running", conditions: [{ type: "Paused", status: "True" }] })), ["unpause"]);
  assert.deepEqual(ids(vmi("a", { phase: "Pending" })), []);
  assert.equal(deleteMachine(machineOf(vmi("a", READY), vm)).command, "kubectl delete vm a -n default");
});

test("a fork has no identity of its source", () => {
  const source = { ...vmi("a", READY), spec: { hostname: "a", domain: { firmware: { uuid: "u", serial: "s", bootloader: {} } } } };
  const body = fork(source, "c").request.body as { spec: unknown; metadata: { annotations: unknown } };
  assert.deepEqual(body.spec, { domain: { firmware: { bootloader: {} } } });
  assert.deepEqual(body.metadata.annotations, { "corral.dev/start-from": "c" });
});

test("a machine migrates where there is another node that is ready", () => {
  const node = (name: string, status: string): KubeObject => ({ metadata: { name }, status: { conditions: [{ type: "Ready", status }] } });
  const machine = machineOf(vmi("a", { ...READY, nodeName: "n1" }), undefined);
  const refusal = (...nodes: KubeObject[]) => machineActions(machine, nodes).find((each) => each.id === "migrate")?.unavailable;
  assert.match(refusal(node("n1", "True"), node("n2", "Unknown")) ?? "", /No other node is ready/);
  assert.equal(refusal(node("n1", "True"), node("n2", "True")), undefined);
  assert.equal(refusal(), undefined);
});

test("texts cannot reverse what follows", () => {
  assert.equal(withoutOverrides("a\u202egnp.exe"), "a\ufffdgnp.exe");
  assert.equal(withoutOverrides("ä שלום"), "ä שלום");
});

test("no line of YAML ends the command that creates it", () => {
  assert.equal(createCommand("a: 1\n"), "kubectl create -f - <<'EOF'\na: 1\nEOF");
  assert.equal(createCommand("a: '\nEOF\rEOF1\nreboot'"), "kubectl create -f - <<'EOF2'\na: '\nEOF\rEOF1\nreboot'\nEOF2");
});

test("objects are YAML in commands, whatever their strings", () => {
  const object = { kind: "X", spec: { "a.b/c": "true", list: [{ name: "disk", to: ["1", 2] }, {}], text: "a: b\n#", none: null, empty: {}, absent: undefined } };
  const lines = ["kind: X", "spec:", "  a.b/c: \"true\"", "  list:", "    - name: disk", "      to:", "        - \"1\"", "        - 2", "    - {}", '  text: "a: b\\n#"', '  none: null', "  empty: {}", ""];
  assert.equal(yamlOf(object), lines.join("\n"));
  assert.deepEqual(parse(yamlOf(object)), JSON.parse(JSON.stringify(object)));
});

test("managed fields name the user of the page", () => {
  assert.equal(describeManager(managerOf("otto")), "otto, by the dashboard");
  assert.equal(describeManager(managerOf("")), "the dashboard");
  assert.equal(managerOf("a\u0000b c"), "dashboard:a_b_c");
  assert.equal(managerOf("x".repeat(500)).length, 128);
  assert.equal(describeManager("kubectl-edit"), "kubectl-edit");
});

test("words of a command are quoted for a shell", () => {
  assert.equal(quoted("a-b"), "a-b");
  assert.equal(quoted("it's"), "'it'\\''s'");
  assert.equal(kubectl("", "get", "node", "$(reboot)"), "kubectl get node '$(reboot)'");
});

test("rights follow the rules, with wildcards and names", () => {
  const rights = Rights.of({ status: { resourceRules: [{ verbs: ["get", "update"], apiGroups: ["subresources.kubevirt.io"], resources: ["virtualmachines/start", "*/vnc"], resourceNames: ["a"] }] } }, "default");
  const deed = { verb: "update", group: "subresources.kubevirt.io", resource: "virtualmachines/start", name: "a" };
  assert.equal(rights.allows(deed), true);
  assert.equal(rights.allows({ ...deed, name: "b" }), false);
  assert.equal(rights.allows({ ...deed, verb: "delete" }), false);
  assert.equal(rights.allows({ ...deed, resource: "virtualmachineinstances/vnc" }), true);
  assert.match(rights.refusal({ ...deed, verb: "delete" }), /does not permit "delete" on .* in default/);
  assert.equal(Rights.of({ status: { incomplete: true } }, "default").allows(deed), true);
});

function event(name: string, reason: string, kind: string, at: string, about = "a"): KubeEvent {
  return { metadata: { name, namespace: "default", creationTimestamp: at }, reason, firstTimestamp: at, lastTimestamp: at, involvedObject: { kind, name: about, namespace: "default" } };
}

test("an event's name has its time to the millisecond, where it agrees with its timestamp", () => {
  const at = Date.parse("2026-01-01T00:00:01Z");
  const name = `a.${(BigInt(at + 234) * 1_000_000n).toString(16)}`;
  assert.deepEqual(eventMoment(event(name, "Started", "VirtualMachineInstance", "2026-01-01T00:00:01Z")), { time: at + 234, isPrecise: true });
  assert.deepEqual(eventMoment(event(name, "Started", "VirtualMachineInstance", "2026-01-01T00:05:00Z")), { time: Date.parse("2026-01-01T00:05:00Z"), isPrecise: false });
});

test("a start has its stages in order, each with what it took", () => {
  const ns = (ms: number) => (BigInt(Date.parse("2026-01-01T00:00:00Z") + ms) * 1_000_000n).toString(16);
  const events = [
    event(`a.${ns(900)}`, "Started", "VirtualMachineInstance", "2026-01-01T00:00:00Z"),
    event(`p.${ns(300)}`, "Scheduled", "Pod", "2026-01-01T00:00:00Z"),
    event(`a.${ns(200)}`, "SuccessfulCreate", "VirtualMachineInstance", "2026-01-01T00:00:00Z"),
  ];
  const conditions = [
    { type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:04Z" },
    { type: "AgentConnected", status: "True", lastTransitionTime: "2026-01-01T09:00:00Z" },
  ];
  const stages = timelineOf(vmi("a", { conditions }), events);
  assert.deepEqual(stages.map((each) => [each.label, each.took]), [["Admission", 0], ["Wait for a node", 100], ["QEMU starts", 600], ["Becoming ready", 3100]]);
});

test("a start that has not ended says what it waits for, and how long", () => {
  const pending = vmi("a", { phase: "Scheduling" });
  const stages = timelineOf(pending, [event("a.1", "SuccessfulCreate", "VirtualMachineInstance", "2026-01-01T00:00:01Z")]);
  const now = Date.parse("2026-01-01T00:08:01Z");
  const current = currentStage(pending, stages, now);
  assert.deepEqual([current?.label, current?.took], ["Wait for a node", 480_000]);
  assert.equal(currentStage(vmi("a", { phase: "Running" }), stages, now), undefined);
  const pulling = timelineOf(pending, [event("p.1", "Pulling", "Pod", "2026-01-01T00:00:02Z"), event("a.2", "Created", "VirtualMachineInstance", "2026-01-01T00:15:02Z")]);
  assert.deepEqual(pulling.map((each) => [each.label, each.took]), [["Node accepts it", 2000], ["Image and disk", 900_000]]);
});

test("activity has events and the changes of people, the newest first", () => {
  const changes = changesOf([
    { manager: "kubectl-edit", operation: "Update", time: "2026-01-01T00:00:09Z", fieldsV1: { "f:spec": { "f:replicas": {} }, "f:metadata": { "f:labels": {} } } },
    { manager: "virt-controller", operation: "Update", time: "2026-01-01T00:00:08Z" },
    { manager: "x", operation: "Update", subresource: "status", time: "2026-01-01T00:00:08Z" },
  ]);
  const here = world({ sets: [{ ...SET, changes } as KubeObject], events: [event("e", "SuccessfulCreate", "VirtualMachineInstanceReplicaSet", "2026-01-01T00:00:05Z", "web")] });
  const entries = activityOf(here, new Map());
  assert.deepEqual(entries.map((each) => [each.reason, each.who, each.message]), [["Changed", "kubectl-edit", "spec.replicas, metadata.labels (now 2)"], ["SuccessfulCreate", "", ""]]);
  assert.deepEqual(entries.map((each) => matchesFilter(each, { text: "web EDIT", only: "all" })), [true, false]);
  assert.deepEqual(entries.map((each) => matchesFilter(each, { text: "", only: "changes" })), [true, false]);
});

test("events of a machine are those of its VMI, its VirtualMachine and its pods alone", () => {
  const about = (kind: string, name: string) => isAbout(event("e", "x", kind, "2026-01-01T00:00:00Z", name), "default", "a");
  assert.equal(about("VirtualMachineInstance", "a"), true);
  assert.equal(about("Pod", "virt-launcher-a-x1y2z"), true);
  assert.equal(about("Pod", "virt-launcher-a-b-x1y2z"), false);
  assert.equal(about("VirtualMachinePool", "a"), false);
  assert.equal(linkTo("Pod", "default", "virt-launcher-a-b-x1y2z"), href("machine", "default", "a-b"));
});

test("the form makes each kind, and fields are found in the YAML", () => {
  const form = { ...blankForm(""), userData: "#!/bin/sh" };
  assert.equal((objectOf(form) as { kind: string }).kind, "VirtualMachineInstanceReplicaSet");
  assert.equal((objectOf({ ...form, what: "pool" }) as { kind: string }).kind, "VirtualMachinePool");
  assert.equal((objectOf({ ...form, what: "vm" }) as { kind: string }).kind, "VirtualMachine");
  const yaml = "metadata:\n  name: a\nspec:\n  template:\n    spec:\n      volumes:\n        - name: root\n";
  assert.equal(lineOfField(yaml, "spec.template.spec.volumes[0].name"), 7);
  assert.equal(lineOfField(yaml, "spec.template.spec.domain"), 5);
  assert.equal(lineOfField(yaml, "status"), 0);
});

test("addresses of views survive every name", () => {
  assert.deepEqual(routeOf(href("machine", "a/b", "ä #?")), { view: "machine", parts: ["a/b", "ä #?"] });
  assert.deepEqual(routeOf("#/nonsense"), { view: "fleet", parts: [] });
  assert.deepEqual(routeOf("#/set/%E0%A4%A"), { view: "set", parts: ["%E0%A4%A"] });
  assert.equal(pathOf(KINDS.vmis, "v1", "a b", "x"), "/apis/kubevirt.io/v1/namespaces/a%20b/virtualmachineinstances/x");
});

test("quantities and times read as people write them", () => {
  assert.equal(parseQuantity("100m"), 0.1);
  assert.equal(parseQuantity("64Mi"), 64 * 2 ** 20);
  assert.ok(Number.isNaN(parseQuantity("many")));
  assert.equal(bytes(64 * 2 ** 20), "64 MiB");
  assert.equal(processors(0.003), "3 mCPU");
  assert.equal(age("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:05Z")), "3m5s");
  assert.equal(duration(340), "340 ms");
});

test("usage keeps samples of the pods that there are, each once", () => {
  const pod = (timestamp: string) => ({ metadata: { namespace: "default", labels: { "vm.kubevirt.io/name": "a" } }, timestamp, containers: [{ usage: { cpu: "250m", memory: "64Mi" } }] });
  const none = { machines: new Map(), nodes: new Map(), available: true };
  const first = recordUsage(none, [pod("2026-01-01T00:00:00Z")], []);
  const again = recordUsage(first, [pod("2026-01-01T00:00:00Z")], []);
  const later = recordUsage(again, [pod("2026-01-01T00:00:15Z")], []);
  assert.equal(again.machines.get("default/a")?.length, 1);
  assert.deepEqual(later.machines.get("default/a")?.map((each) => each.cpu), [0.25, 0.25]);
  assert.equal(recordUsage(later, [], []).machines.size, 0);
});
