import assert from "node:assert/strict";

import k8s from "../client.mjs";
import { podOfAMachine } from "../kinds.mjs";

export async function theLifeOfAConfigMap({ core, namespace }) {
  const body = { metadata: { name: "x" }, data: { a: "1" } };
  const made = await core.createNamespacedConfigMap({ namespace, body });
  assert(made.metadata.creationTimestamp instanceof Date);
  made.data.a = "2";
  const changed = await core.replaceNamespacedConfigMap({ name: "x", namespace, body: made });
  assert.deepEqual((await core.readNamespacedConfigMap({ name: "x", namespace })), changed);
  assert.deepEqual(changed.data, { a: "2" });
  const gone = await core.deleteNamespacedConfigMap({ name: "x", namespace });
  assert.equal(gone.status, "Success");
  const left = await core.listNamespacedConfigMap({ namespace });
  assert(!left.items.some(({ metadata }) => metadata.name === "x"));
}

export async function theLifeOfADeployment({ config, namespace }) {
  const apps = config.makeApiClient(k8s.AppsV1Api);
  const labels = { app: "web" };
  const containers = [{ name: "web", image: "nginx", ports: [{ containerPort: 80 }] }];
  const template = { metadata: { labels }, spec: { containers } };
  const body = { metadata: { name: "web" }, spec: { selector: { matchLabels: labels }, template } };
  await apps.createNamespacedDeployment({ namespace, body });
  const read = await apps.readNamespacedDeployment({ name: "web", namespace });
  assert.equal(read.spec.replicas, 1);
  assert.equal(read.spec.strategy.rollingUpdate.maxSurge, "25%");
  read.spec.replicas = 3;
  read.spec.strategy.rollingUpdate.maxSurge = 2;
  const changed = await apps.replaceNamespacedDeployment({ name: "web", namespace, body: read });
  assert.deepEqual([changed.spec.replicas, changed.spec.strategy.rollingUpdate.maxSurge], [3, 2]);
  await apps.deleteNamespacedDeployment({ name: "web", namespace });
  assert.deepEqual((await apps.listNamespacedDeployment({ namespace })).items, []);
}

export async function bytesOfASecret({ core, namespace }) {
  const body = { metadata: { name: "x" }, stringData: { user: "ada" } };
  const made = await core.createNamespacedSecret({ namespace, body });
  assert.deepEqual([made.type, made.data], ["Opaque", { user: "YWRh" }]);
}

export async function aPodIsEvicted(context) {
  const { core, namespace } = context;
  const name = await podOfAMachine(context);
  const holds = (finalizers) => [{ op: "add", path: "/metadata/finalizers", value: finalizers }];
  await core.patchNamespacedPod({ name, namespace, body: holds(["example.com/hold"]) });
  await core.createNamespacedPodEviction({ name, namespace, body: { metadata: { name } } });
  const { metadata } = await core.readNamespacedPod({ name, namespace });
  assert(metadata.deletionTimestamp instanceof Date);
  await core.patchNamespacedPod({ name, namespace, body: holds([]) });
}

export async function allOfAKindAreDeleted({ core, namespace }) {
  for (const name of ["a", "b"]) {
    await core.createNamespacedSecret({ namespace, body: { metadata: { name } } });
  }
  await core.deleteCollectionNamespacedSecret({ namespace });
  assert.deepEqual((await core.listNamespacedSecret({ namespace })).items, []);
}
