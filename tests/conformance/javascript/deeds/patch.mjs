import assert from "node:assert/strict";

import k8s from "../client.mjs";

const { JsonPatch, MergePatch, StrategicMergePatch } = k8s.PatchStrategy;
const as = (type) => k8s.setHeaderOptions("Content-Type", type);

async function changes({ core, namespace }, body, ...options) {
  const made = { metadata: { name: "x" }, data: { a: "1" } };
  await core.createNamespacedConfigMap({ namespace, body: made });
  const changed = await core.patchNamespacedConfigMap({ name: "x", namespace, body }, ...options);
  assert.deepEqual(changed.data, { a: "1", b: "2" });
}

export async function aJsonPatchIsWhatItSendsByItself(context) {
  await changes(context, [{ op: "add", path: "/data/b", value: "2" }]);
}

export async function aJsonPatch(context) {
  await changes(context, [{ op: "add", path: "/data/b", value: "2" }], as(JsonPatch));
}

export async function aMergePatch(context) {
  await changes(context, { data: { b: "2" } }, as(MergePatch));
}

export async function aStrategicMergePatch(context) {
  await changes(context, { data: { b: "2" } }, as(StrategicMergePatch));
}
