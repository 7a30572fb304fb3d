import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function aStatusIsWrittenApart({ core, namespace }) {
  const spec = { hard: { "count/configmaps": "5" } };
  const quota = { name: "q", namespace };
  await core.createNamespacedResourceQuota({ namespace, body: { metadata: { name: "q" }, spec } });
  const merge = k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch);
  const body = { status: { used: { "count/secrets": "7" } }, spec: { hard: {} } };
  const changed = await core.patchNamespacedResourceQuotaStatus({ ...quota, body }, merge);
  assert.equal(changed.status.used["count/secrets"], "7");
  assert.deepEqual((await core.readNamespacedResourceQuota(quota)).spec.hard, spec.hard);
}
