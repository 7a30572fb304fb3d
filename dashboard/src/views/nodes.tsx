/** Nodes with their load and their machines. */

import { useMemo } from "preact/hooks";
import { useApp } from "../app-context";
import { conditions, condition, isCordoned, list, text, type KubeObject } from "../api/objects";
import { Age, Empty, Facts, Meter, Title } from "../parts/basics";
import { Squares } from "../parts/squares";
import { countStates, describeCounts, type Machine } from "../model/machines";
import { bytes, parseQuantity, processors } from "../model/quantity";

export function NodesView() {
  return (
    <>
      <Title name="Nodes" />
      <NodeCards detailed />
    </>
  );
}

export function NodeCards({ detailed = false }: { detailed?: boolean }) {
  const { world, fleet } = useApp();
  const byNode = useMemo(() => groupByNode(fleet.sorted), [fleet.sorted, fleet.machines]);
  const nodes = world.nodes.items;
  if (world.nodes.phase === "forbidden") return detailed ? <Empty title="Your role does not permit to list nodes" /> : null;
  if (nodes.length === 0) return detailed ? <Empty title="No nodes" /> : null;
  return (
    <section aria-labelledby="nodes">
      {detailed ? <h2 id="nodes" class="hidden">All nodes</h2> : <h2 id="nodes">Nodes</h2>}
      <ul class="cards nodes">
        {nodes.map((each) => (
          <NodeCard key={each.metadata.uid} node={each} machines={byNode.get(each.metadata.name) ?? []} detailed={detailed} />
        ))}
      </ul>
    </section>
  );
}

/** A name on each line; a long one continues after a slash or an equals sign. */
function Names({ of }: { of: readonly string[] }) {
  if (of.length === 0) return <>none</>;
  return (
    <ul>
      {of.map((name) => (
        <li key={name}>{name.split(/(?<=[/=:])/).map((part, index) => [index > 0 && <wbr key={part} />, part])}</li>
      ))}
    </ul>
  );
}

/** Return a node's labels as kubectl writes them: key=value. */
function labelsOf(node: KubeObject): string[] {
  return Object.entries(node.metadata.labels ?? {}).map(([key, value]) => (value ? `${key}=${value}` : key));
}

/** Return a node's taints as kubectl writes them: key=value:Effect. */
function taintsOf(node: KubeObject): string[] {
  return list(node, "spec", "taints").map((each) => {
    const value = text(each, "value");
    return `${text(each, "key")}${value && `=${value}`}:${text(each, "effect")}`;
  });
}

function groupByNode(machines: readonly Machine[]): Map<string, Machine[]> {
  const groups = new Map<string, Machine[]>();
  for (const machine of machines) {
    const group = groups.get(machine.node);
    if (group) group.push(machine);
    else groups.set(machine.node, [machine]);
  }
  return groups;
}

/** Capacity beyond this is no host's: a simulated node. */
const SIMULATED_CPUS = 50_000;

function NodeCard({ node, machines, detailed }: { node: KubeObject; machines: readonly Machine[]; detailed: boolean }) {
  const { world } = useApp();
  const { name } = node.metadata;
  const ready = condition(node, "Ready");
  const cpu = parseQuantity(text(node, "status", "allocatable", "cpu"));
  const memory = parseQuantity(text(node, "status", "allocatable", "memory"));
  const used = world.usage.nodes.get(name)?.at(-1);
  const isSimulated = cpu > SIMULATED_CPUS;
  return (
    <li class="card node">
      <div class="what">
        <span class="name">{name}</span>
        <span class="note">
          {ready?.status === "True" ? "ready" : `not ready: ${ready?.message ?? "no report"}`}
          {isCordoned(node) && " · cordoned"} · {machines.length} machines
          {isSimulated && " · simulated"}
        </span>
      </div>
      {used && !isSimulated && (
        <>
          <Meter label="CPU" value={used.cpu / cpu} text={`${processors(used.cpu)} of ${cpu} used`} />
          <Meter label="Memory" value={used.memory / memory} text={`${bytes(used.memory)} of ${bytes(memory)} used`} />
        </>
      )}
      {used && isSimulated && <p class="note">Uses {processors(used.cpu)} and {bytes(used.memory)} of its host.</p>}
      {!used && <p class="note">{world.usage.available ? "Its load is measured every 15 s." : "Without metrics.k8s.io there is no load to show."}</p>}
      <Squares machines={machines} missing={0} label={`Machines on ${name}: ${describeCounts(countStates(machines))}`} />
      {detailed && (
        <Facts
          rows={[
            ["Address", text(list(node, "status", "addresses")[0], "address")],
            ["Kernel", text(node, "status", "nodeInfo", "kernelVersion")],
            ["System", text(node, "status", "nodeInfo", "osImage")],
            ["Agent", text(node, "status", "nodeInfo", "kubeletVersion")],
            ["Accelerator", node.metadata.annotations?.["corral.dev/accelerator"] ?? ""],
            ["Joined", <Age key="age" since={node.metadata.creationTimestamp} />],
            ["Labels", <Names key="labels" of={labelsOf(node)} />],
            ["Taints", <Names key="taints" of={taintsOf(node)} />],
            ["Conditions", <Names key="conditions" of={conditions(node).map((each) => `${each.type} ${each.status}`)} />],
          ]}
        />
      )}
    </li>
  );
}
