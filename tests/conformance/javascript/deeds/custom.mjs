import assert from "node:assert/strict";

import k8s from "../client.mjs";
import { MACHINES, SETS, changedUntilNobodyWasQuicker, podOfAMachine } from "../kinds.mjs";

export async function theLifeOfAReplicaSet({ custom, namespace, manifests }) {
  const body = manifests.set;
  const made = await custom.createNamespacedCustomObject({ ...SETS, namespace, body });
  assert.equal(made.metadata.generation, 1);
  const web = { ...SETS, namespace, name: "web" };
  await changedUntilNobodyWasQuicker(async () => {
    const body = await custom.getNamespacedCustomObject(web);
    body.spec.replicas = 1;
    await custom.replaceNamespacedCustomObject({ ...web, body });
  });
  const { items } = await custom.listNamespacedCustomObject({ ...SETS, namespace });
  assert.deepEqual(items.map(({ spec }) => spec.replicas), [1]);
  const all = { ...SETS, resourcePlural: SETS.plural };
  const everywhere = await custom.listCustomObjectForAllNamespaces(all);
  assert(everywhere.items.some(({ metadata }) => metadata.uid === made.metadata.uid));
  await custom.deleteNamespacedCustomObject(web);
}

export async function aManifestOfAnyKind({ config, namespace, manifests }) {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const pool = k8s.loadYaml(manifests.pool);
  pool.metadata.namespace = namespace;
  const made = await objects.create(pool);
  assert.equal(made.spec.replicas, pool.spec.replicas);
  const header = { apiVersion: pool.apiVersion, kind: pool.kind, metadata: pool.metadata };
  const patch = { ...header, spec: { replicas: 0 } };
  const how = [undefined, undefined, "me", undefined, k8s.PatchStrategy.MergePatch];
  const changed = await objects.patch(patch, ...how);
  assert.equal(changed.spec.replicas, 0);
  const found = await objects.list(pool.apiVersion, pool.kind, namespace);
  assert.deepEqual(found.items.map(({ metadata }) => metadata.uid), [made.metadata.uid]);
  assert.equal((await objects.read(header)).metadata.uid, made.metadata.uid);
  await changedUntilNobodyWasQuicker(async () => {
    const read = await objects.read(header);
    read.metadata.labels = { color: "red" };
    assert.deepEqual((await objects.replace(read)).metadata.labels, { color: "red" });
  });
  await objects.delete(header);
  const gone = async () => { for (;;) await objects.read(header); }; // its controller ends it
  await assert.rejects(gone(), ({ code }) => code === 404);
}

export async function aMachineIsDeletedWithWhatItHas(context) {
  const { core, custom, namespace, manifests } = context;
  const name = await podOfAMachine(context);
  const machine = { ...MACHINES, namespace, name: manifests.machine.metadata.name };
  await custom.deleteNamespacedCustomObject({ ...machine, propagationPolicy: "Foreground" });
  const gone = async () => { for (;;) await core.readNamespacedPod({ name, namespace }); };
  await assert.rejects(gone(), ({ code }) => code === 404);
}
