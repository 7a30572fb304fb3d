/** What is wrong, in words, and what to do about it. Pure. */

import type { World } from "../api/cluster";
import { condition, conditions, isTrue, text, type KubeObject } from "../api/objects";
import type { Fleet, Row } from "./fleet";
import { setKindOf } from "./fleet";
import { imageOf, troubleOf, type Machine } from "./machines";
import { bytes, parseQuantity } from "./quantity";
import { href } from "./routes";

export interface Problem {
  key: string;
  severity: "error" | "warning";
  /** What is wrong. */
  title: string;
  /** The reason, in the words of the server. */
  reason: string;
  /** What to do. */
  remedy: string;
  link: string;
}

interface Rule {
  pattern: RegExp;
  what: string;
  remedy: string;
}

const NO_MEMORY: Rule = { pattern: /insufficient memory|Insufficient.*memory/i, what: "cannot start: no node has enough free memory", remedy: "Scale another set down, request less memory in the template, or add a node (corral join)." };
const NO_FIT: Rule = { pattern: /taint|didn't match|node selector|affinity/i, what: "cannot start: no node fits its rules", remedy: "Compare the template's nodeSelector, affinity and tolerations with the labels and taints under Nodes." };

/** Reasons and messages of machines that do not start, in the order in which they are tried. */
const RULES: Rule[] = [
  NO_MEMORY,
  { pattern: /insufficient cpu/i, what: "cannot start: no node has enough free processors", remedy: "Scale another set down, request less CPU in the template, or add a node (corral join)." },
  { pattern: /ErrImagePull|ImagePullBackOff|pull/i, what: "cannot start: the image cannot be pulled", remedy: "Check the image's name and tag in the template, and that the registry can be reached from the node; pulls are tried again by themselves." },
  { pattern: /InvalidImageName|ErrImageNeverPull/, what: "cannot start: the image is not usable", remedy: "Correct the image in the template, or load it on the node (corral image)." },
  { pattern: /quota/i, what: "cannot be created: a quota is used up", remedy: "Delete machines of this namespace, or raise its ResourceQuota." },
  { pattern: /PvcNotFound|persistentvolumeclaim.*not found|PVC.*not found/i, what: "cannot start: a claimed volume does not exist", remedy: "Create the PersistentVolumeClaim that the template names, or correct its name." },
  { pattern: /DataVolume/i, what: "waits for its data volume", remedy: "See the data volume's progress under Images; it starts by itself when the disk is filled." },
  NO_FIT,
  { pattern: /CrashLoopBackOff|again and again/i, what: "ends again and again after it starts", remedy: "Read its console log for the guest's last words, and its events." },
];
const OTHER: Rule = { pattern: /./, what: "cannot start", remedy: "Open the machine: its events say what was tried." };

export function problemsOf(world: World, fleet: Fleet): Problem[] {
  const problems = [
    ...nodeProblems(world.nodes.items),
    ...problemsOfMachines(fleet.sorted, world.nodes.items),
    ...fleet.sorted.flatMap(problemsOfFork),
    ...fleet.rows.flatMap(problemsOfRow),
    ...warmPoolProblems(world.warmPools.items),
    ...claimProblems(world.claims.items),
    ...objectFailures(world),
  ];
  return problems.sort((one, other) => rank(one) - rank(other) || one.key.localeCompare(other.key));
}

function rank(problem: Problem): number {
  return problem.severity === "error" ? 0 : 1;
}

function nodeProblems(nodes: readonly KubeObject[]): Problem[] {
  return nodes.flatMap((node) => {
    const { name } = node.metadata;
    const problems: Problem[] = [];
    const ready = condition(node, "Ready");
    if (ready && ready.status !== "True")
      problems.push({
        key: `node/${name}`,
        severity: "error",
        title: `Node ${name} is not ready`,
        reason: ready.message || ready.reason || "",
        remedy: "See whether the host is up and its agent runs; machines that must not run twice move when it is known to be gone.",
        link: href("nodes"),
      });
    for (const each of conditions(node))
      if (each.type.endsWith("Pressure") && each.status === "True")
        problems.push({
          key: `node/${name}/${each.type}`,
          severity: "warning",
          title: `Node ${name} runs out of ${each.type.replace("Pressure", "").toLowerCase()}`,
          reason: each.message || "",
          remedy: "Stop machines on this node or free space on its host: no new machine starts there, and machines are evicted.",
          link: href("nodes"),
        });
    return problems;
  });
}

/** Return what is wrong with machines, once for all members of a set; nothing for those that start, run or have ended well. */
export function problemsOfMachines(machines: readonly Machine[], nodes: readonly KubeObject[]): Problem[] {
  const groups = new Map<string, { rule: Rule; machines: Machine[] }>();
  for (const machine of machines) {
    if (machine.state !== "failed" && machine.state !== "waiting") continue;
    const rule = machine.state === "failed" && !/CrashLoop|again and again/.test(machine.detail) ? failure() : ruleFor(machine, nodes);
    const owner = machine.owner ? `${machine.owner.kind}/${machine.owner.name}` : machine.name;
    const key = `machine/${machine.namespace}/${owner}/${rule.what}`;
    const group = groups.get(key);
    if (group) group.machines.push(machine);
    else groups.set(key, { rule, machines: [machine] });
  }
  return [...groups].map(([key, group]) => groupProblem(key, group.rule, group.machines));
}

function failure(): Rule {
  return { pattern: OTHER.pattern, what: "has failed", remedy: "Read its console log and events. A member of a set is replaced by itself; a machine on its own is deleted and created again." };
}

function ruleFor(machine: Machine, nodes: readonly KubeObject[]): Rule {
  const trouble = machine.vmi && troubleOf(machine.vmi);
  const words = `${trouble?.reason ?? ""} ${machine.detail} ${text(machine.vm, "status", "printableStatus")}`;
  const rule = RULES.find((each) => each.pattern.test(words)) ?? OTHER;
  if (rule === NO_MEMORY) return tooLarge(machine, nodes) ?? rule;
  return rule === NO_FIT ? (wrongLabels(machine, nodes) ?? rule) : rule;
}

/** Return the rule for a machine that no node could ever have, however empty it is. */
function tooLarge(machine: Machine, nodes: readonly KubeObject[]): Rule | undefined {
  const domain = ["spec", "domain"];
  const requested = parseQuantity(text(machine.vmi, ...domain, "resources", "requests", "memory") || text(machine.vmi, ...domain, "memory", "guest"));
  const largest = Math.max(...nodes.map((each) => parseQuantity(text(each, "status", "allocatable", "memory"))));
  if (!(requested > largest) || !Number.isFinite(largest)) return undefined;
  const what = `cannot start: it requests ${bytes(requested)} of memory, and the largest node has ${bytes(largest)}`;
  return { ...NO_MEMORY, what, remedy: "Request less memory in the template, or add a larger node (corral join)." };
}

/** Return the rule for a machine whose nodeSelector matches no node. */
function wrongLabels(machine: Machine, nodes: readonly KubeObject[]): Rule | undefined {
  const selector = Object.entries((machine.vmi?.spec as { nodeSelector?: Record<string, string> } | undefined)?.nodeSelector ?? {});
  const fits = (node: KubeObject) => selector.every(([key, value]) => node.metadata.labels?.[key] === value);
  if (selector.length === 0 || nodes.some(fits)) return undefined;
  const labels = selector.map(([key, value]) => `${key}=${value}`);
  return {
    ...NO_FIT,
    what: `cannot start: no node has the label${labels.length > 1 ? "s" : ""} ${labels.join(", ")} of its nodeSelector`,
    remedy: `Label a node (kubectl label node NAME ${labels.join(" ")}), or change the nodeSelector in the template. Nodes lists the labels of each.`,
  };
}

function groupProblem(key: string, rule: Rule, machines: Machine[]): Problem {
  const first = machines[0] as Machine;
  const kind = first.owner && setKindOf(first.owner.kind);
  const isImage = rule.what.includes("image");
  const image = isImage && imageOf(first) ? ` (${imageOf(first)})` : "";
  const many = machines.length > 1;
  const who = many ? `${machines.length} machines of ${first.owner?.name ?? first.namespace}` : `Machine ${first.name}`;
  const what = many ? rule.what.replace(/^has /, "have ").replace(/^waits for its/, "wait for their").replace(/^ends /, "end ").replace(/ it starts$/, " they start").replace("it requests", "each requests").replace("of its nodeSelector", "of their nodeSelector") : rule.what;
  return {
    key,
    severity: "error",
    title: `${who} ${what}${image}`,
    reason: first.detail,
    remedy: rule.remedy,
    link: many && kind && first.owner ? href("set", kind, first.namespace, first.owner.name) : href("machine", first.namespace, first.name),
  };
}

/** Reasons why a fork is not what it was to be; others pass by themselves. */
const FORK_FAILURES: Record<string, Pick<Rule, "what" | "remedy">> = {
  ForkFailed: { what: "has booted: it could not start from its checkpoint", remedy: "Use it as one that has booted, or delete it and fork a new checkpoint." },
  IdentityShared: { what: "has the identity of the machine that it was forked from", remedy: "See that the guest agent runs in its source, then delete it and fork again." },
};

/** Return what is wrong with a machine that was to start from a checkpoint. */
export function problemsOfFork(machine: Machine): Problem[] {
  const forked = condition(machine.vmi, "Forked");
  const found = FORK_FAILURES[forked?.status === "False" ? (forked.reason ?? "") : ""];
  if (!found) return [];
  return [{
    key: `fork/${machine.key}`,
    severity: "warning",
    title: `Machine ${machine.name} ${found.what}`,
    reason: forked?.message || "",
    remedy: found.remedy,
    link: href("machine", machine.namespace, machine.name),
  }];
}

/** Return what is wrong with a set itself, beside its machines. */
export function problemsOfRow(row: Row): Problem[] {
  const failed = condition(row.object, "ReplicaFailure");
  const link = href("set", row.kind, row.namespace, row.name);
  if (failed?.status === "True") {
    const rule = RULES.find((each) => each.pattern.test(`${failed.reason} ${failed.message}`)) ?? OTHER;
    const remedy = rule === OTHER ? "Correct what the message names, in the set's YAML." : rule.remedy;
    return [{ key: `row/${row.key}`, severity: "error", title: `${row.name} cannot create its machines`, reason: failed.message || failed.reason || "", remedy, link }];
  }
  if (row.outdated === 0) return [];
  const title = `${row.outdated} of ${row.machines.length} machines of ${row.name} run an older template`;
  return [{ key: `row/${row.key}/outdated`, severity: "warning", title, reason: "", remedy: "Restart them to have them take the new one.", link }];
}

function warmPoolProblems(pools: readonly KubeObject[]): Problem[] {
  return pools.flatMap((pool): Problem[] => {
    const ready = condition(pool, "Ready");
    const settled = ["SparesReady", "SparesStarting", "Scaled", "WaitingForCheckpoint"];
    if (!ready || ready.status === "True" || settled.includes(ready.reason ?? "")) return [];
    const { name, namespace = "" } = pool.metadata;
    return [{
      key: `warm/${namespace}/${name}`,
      severity: "warning",
      title: `Warm pool ${name} is not full`,
      reason: ready.message || ready.reason || "",
      remedy: "Spares that start become ready by themselves; if the number does not rise, open one of them.",
      link: href("set", "warmPools", namespace, name),
    }];
  });
}

function claimProblems(claims: readonly KubeObject[]): Problem[] {
  return claims.flatMap((claim): Problem[] => {
    const bound = condition(claim, "Bound");
    const ready = condition(claim, "Ready");
    const { name, namespace = "" } = claim.metadata;
    const failed = ["MachineDeleted", "MachineEnded", "UserDataFailed"].includes(ready?.reason ?? "");
    if (isTrue(claim, "Expired") || (bound?.status !== "False" && !failed)) return [];
    const pool = text(claim, "spec", "warmPoolRef", "name");
    const remedy = failed
      ? "Delete the claim, and create another one."
      : bound?.reason === "WarmPoolNotFound"
        ? `Create the warm pool ${pool}, or delete the claim.`
        : `Scale the warm pool ${pool} up; the claim is served in its turn.`;
    return [{
      key: `claim/${namespace}/${name}`,
      severity: failed ? "error" : "warning",
      title: failed ? `Claim ${name} has lost its machine` : `Claim ${name} waits for a machine of ${pool}`,
      reason: (failed ? ready?.message : bound?.message) || "",
      remedy,
      link: href("fleet"),
    }];
  });
}

function objectFailures(world: World): Problem[] {
  const problems: Problem[] = [];
  for (const volume of world.dataVolumes.items) {
    if (text(volume, "status", "phase") !== "Failed") continue;
    const running = condition(volume, "Running");
    const title = `Data volume ${volume.metadata.name} could not be filled`;
    problems.push({ key: `dv/${volume.metadata.namespace}/${volume.metadata.name}`, severity: "error", title, reason: running?.message ?? "", remedy: "Check its source's address, then delete and create it again.", link: href("images") });
  }
  for (const checkpoint of world.checkpoints.items) {
    if (!isTrue(checkpoint, "Failed")) continue;
    const title = `Checkpoint ${checkpoint.metadata.name} could not be made`;
    problems.push({ key: `cp/${checkpoint.metadata.namespace}/${checkpoint.metadata.name}`, severity: "warning", title, reason: condition(checkpoint, "Failed")?.message ?? "", remedy: "Delete it, and make another one of a machine that runs.", link: href("fleet") });
  }
  return problems;
}
