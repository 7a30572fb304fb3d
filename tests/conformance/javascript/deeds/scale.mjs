import assert from "node:assert/strict";

import k8s from "../client.mjs";
import { SETS, until } from "../kinds.mjs";

export async function aReplicaSetIsScaled(context) {
  const { custom, namespace, manifests } = context;
  await custom.createNamespacedCustomObject({ ...SETS, namespace, body: manifests.set });
  const web = { ...SETS, namespace, name: "web" };
  const merge = k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch);
  const change = { spec: { replicas: 2 } };
  await custom.patchNamespacedCustomObjectScale({ ...web, body: change }, merge);
  await until(context, web, ({ status }) => status?.readyReplicas === 2);
  const scale = await custom.getNamespacedCustomObjectScale(web);
  assert.deepEqual([scale.kind, scale.status], ["Scale", { replicas: 2, selector: "app=web" }]);
  scale.spec.replicas = 1;
  delete scale.metadata.resourceVersion;
  await custom.replaceNamespacedCustomObjectScale({ ...web, body: scale });
  await until(context, web, ({ status }) => status?.replicas === 1);
}
