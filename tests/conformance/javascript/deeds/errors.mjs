import assert from "node:assert/strict";

import k8s from "../client.mjs";
import { SETS } from "../kinds.mjs";

// The Status with which a request is refused, as the client tells it.
async function refused(request) {
  const error = await request.then(() => assert.fail("it was not refused"), (error) => error);
  assert(error instanceof k8s.ApiException, error);
  const status = JSON.parse(error.body);
  assert.deepEqual([status.kind, status.code], ["Status", error.code]);
  assert.equal(error.headers["content-type"], "application/json");
  return status;
}

export async function whatIsNotThere({ core, namespace }) {
  const status = await refused(core.readNamespacedSecret({ name: "nosuch", namespace }));
  assert.deepEqual([status.code, status.reason], [404, "NotFound"]);
  assert.equal(status.message, 'secrets "nosuch" not found');
}

export async function whatIsWrong({ custom, namespace, manifests }) {
  manifests.set.spec.replicas = -1;
  const request = custom.createNamespacedCustomObject({ ...SETS, namespace, body: manifests.set });
  const status = await refused(request);
  assert.deepEqual([status.code, status.reason], [422, "Invalid"]);
  assert.equal(status.details.causes[0].field, ".spec.replicas");
}

export async function whatIsThereAlready({ core, namespace }) {
  const body = { metadata: { name: "x" } };
  await core.createNamespacedSecret({ namespace, body });
  const status = await refused(core.createNamespacedSecret({ namespace, body }));
  assert.deepEqual([status.code, status.reason], [409, "AlreadyExists"]);
}
