import assert from "node:assert/strict";

import k8s from "../client.mjs";
import { SETS } from "../kinds.mjs";

const { ServerSideApply } = k8s.PatchStrategy;

export async function whatTwoWantDifferentlyIsAConflict({ config, namespace }) {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const applied = (value, manager, force) => {
    const metadata = { name: "x", namespace };
    const spec = { apiVersion: "v1", kind: "ConfigMap", metadata, data: { a: value } };
    return objects.patch(spec, undefined, undefined, manager, force, ServerSideApply);
  };
  assert.deepEqual((await applied("1", "one")).data, { a: "1" });
  await assert.rejects(applied("2", "two"), ({ code, body }) => {
    assert.equal(code, 409);
    assert.match(JSON.stringify(body), /conflict with \\+"one\\+"/);
    return true;
  });
  assert.deepEqual((await applied("2", "two", true)).data, { a: "2" });
}

export async function aReplicaSetIsApplied({ custom, namespace, manifests }) {
  const set = { ...SETS, namespace, name: "web", body: manifests.set, fieldManager: "me" };
  const options = k8s.setHeaderOptions("Content-Type", ServerSideApply);
  const made = await custom.patchNamespacedCustomObject(set, options);
  const [{ manager, operation }] = made.metadata.managedFields;
  assert.deepEqual([manager, operation], ["me", "Apply"]);
}
