/** Usage of processors and memory over the last minutes, from metrics.k8s.io. */

import { list, text } from "../api/objects";
import { parseQuantity } from "./quantity";

export interface Sample {
  time: number;
  cpu: number;
  memory: number;
}

export interface Usage {
  /** Samples of machines by namespace/name of the VMI. */
  machines: ReadonlyMap<string, readonly Sample[]>;
  nodes: ReadonlyMap<string, readonly Sample[]>;
  /** Whether the server has metrics.k8s.io. */
  available: boolean;
}

const SAMPLES_KEPT = 60;
const NAME_LABEL = "vm.kubevirt.io/name";

/** Return the usage with the samples that pods and nodes report now; what has gone is dropped. */
export function recordUsage(usage: Usage, pods: unknown[], nodes: unknown[]): Usage {
  const machines = new Map<string, readonly Sample[]>();
  for (const pod of pods) {
    const name = text(pod, "metadata", "labels", NAME_LABEL);
    if (!name) continue;
    const key = `${text(pod, "metadata", "namespace")}/${name}`;
    const parts = list(pod, "containers");
    machines.set(key, extended(usage.machines.get(key), sampleOf(text(pod, "timestamp"), parts)));
  }
  const byNode = new Map<string, readonly Sample[]>();
  for (const node of nodes) {
    const name = text(node, "metadata", "name");
    byNode.set(name, extended(usage.nodes.get(name), sampleOf(text(node, "timestamp"), [node])));
  }
  return { ...usage, machines, nodes: byNode };
}

function sampleOf(timestamp: string, parts: unknown[]): Sample {
  const sum = (resource: string) =>
    parts.reduce<number>((total, each) => total + (parseQuantity(text(each, "usage", resource)) || 0), 0);
  return { time: Date.parse(timestamp), cpu: sum("cpu"), memory: sum("memory") };
}

function extended(samples: readonly Sample[] | undefined, sample: Sample): readonly Sample[] {
  const last = samples?.at(-1);
  if (samples && last && last.time >= sample.time) return samples;
  return [...(samples ?? []), sample].slice(-SAMPLES_KEPT);
}
