// Where KubeVirt's kinds are, and what deeds do with them.
import { once } from "node:events";

import k8s from "./client.mjs";

const KUBEVIRT = { group: "kubevirt.io", version: "v1" };
export const SETS = { ...KUBEVIRT, plural: "virtualmachineinstancereplicasets" };
export const MACHINES = { ...KUBEVIRT, plural: "virtualmachineinstances" };

// A set's own controller writes its status meanwhile.
export async function changedUntilNobodyWasQuicker(change) {
  for (;;) {
    try {
      return await change();
    } catch (error) {
      if (error.code !== 409) throw error;
    }
  }
}

// The name of the pod of a machine that runs, and whose agent has answered.
export async function podOfAMachine({ config, core, custom, namespace, manifests, signal }) {
  const body = manifests.machine;
  await custom.createNamespacedCustomObject({ ...MACHINES, namespace, body });
  const connected = ({ status }) =>
    status?.conditions?.some(({ type, status }) => type === "AgentConnected" && status === "True");
  await until({ config, signal }, { ...MACHINES, namespace }, connected);
  const { items } = await core.listNamespacedPod({ namespace });
  return items[0].metadata.name;
}

// Watch custom objects until one is as it shall be.
export async function until({ config, signal }, { group, version, namespace, plural }, holds) {
  const path = `/apis/${group}/${version}/namespaces/${namespace}/${plural}`;
  const watch = new k8s.Watch(config);
  const { promise, resolve, reject } = Promise.withResolvers();
  const seen = (type, object) => holds(object) && resolve(object);
  const request = await watch.watch(path, {}, seen, reject);
  signal.addEventListener("abort", reject);
  try {
    return await promise;
  } finally {
    request.abort();
  }
}

// All that a stream brings until it ends.
export async function allOf(stream) {
  const chunks = [];
  stream.on("data", (chunk) => chunks.push(chunk));
  await once(stream, "end");
  return Buffer.concat(chunks).toString();
}
