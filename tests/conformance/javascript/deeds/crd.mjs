import assert from "node:assert/strict";

import k8s from "../client.mjs";

const established = ({ status }) =>
  status?.conditions?.some(({ type, status }) => type === "Established" && status === "True");

export async function aKindOfOnesOwn({ config, custom, namespace }) {
  const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
  const group = `${namespace}.example.com`;
  const name = `labs.${group}`;
  const names = { kind: "Lab", plural: "labs", singular: "lab" };
  const seats = { type: "integer", minimum: 1, _default: 8 };
  const spec = { type: "object", properties: { seats } };
  const openAPIV3Schema = { type: "object", properties: { spec } };
  const versions = [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema } }];
  const body = { metadata: { name }, spec: { group, names, scope: "Namespaced", versions } };
  await definitions.createCustomResourceDefinition({ body });
  try {
    while (!established(await definitions.readCustomResourceDefinition({ name })));
    const labs = { group, version: "v1", plural: "labs", namespace };
    const form = { apiVersion: `${group}/v1`, kind: "Lab", metadata: { name: "one" } };
    const lab = (spec) => ({ ...form, spec });
    const made = await custom.createNamespacedCustomObject({ ...labs, body: lab({ unknown: 1 }) });
    assert.deepEqual(made.spec, { seats: 8 });
    const objects = k8s.KubernetesObjectApi.makeApiClient(config);
    const found = await objects.list(`${group}/v1`, "Lab", namespace);
    assert.deepEqual(found.items.map(({ metadata }) => metadata.name), ["one"]);
    const bad = custom.createNamespacedCustomObject({ ...labs, body: lab({ seats: 0 }) });
    await assert.rejects(bad, ({ code, body }) => code === 422 && /spec\.seats/.test(body));
  } finally {
    await definitions.deleteCustomResourceDefinition({ name });
  }
}
