import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";

import k8s from "../client.mjs";
import { podOfAMachine } from "../kinds.mjs";

export async function whatPodsAskForAndNodesHave(context) {
  const { config, core, namespace } = context;
  const pod = await podOfAMachine(context);
  const [one, ...others] = await k8s.topPods(core, new k8s.Metrics(config), namespace);
  assert.deepEqual([one.Pod.metadata.name, others], [pod, []]);
  assert(one.Memory.LimitTotal > 0);
  const [node] = await k8s.topNodes(core);
  assert(node.Memory.Capacity > node.Memory.RequestTotal && node.Memory.RequestTotal > 0);
}

export async function whatNodesTake({ config, core }) {
  const metrics = new k8s.Metrics(config);
  let { items } = await metrics.getNodeMetrics();
  while (!items.length) {
    await setTimeout(200); // the server looks every 15 seconds, and tells once it did so twice
    ({ items } = await metrics.getNodeMetrics());
  }
  const [node] = (await core.listNode()).items;
  assert.equal(items[0].metadata.name, node.metadata.name);
  assert.match(items[0].usage.cpu, /^\d+n$/);
  assert.match(items[0].usage.memory, /^\d+Ki$/);
}
