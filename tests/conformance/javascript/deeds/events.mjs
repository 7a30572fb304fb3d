import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function anEventIsWrittenAndFound({ config, core, namespace }) {
  const involvedObject = { kind: "ConfigMap", name: "x", namespace };
  const eventTime = new k8s.V1MicroTime();
  const body = {
    metadata: { name: "x.1" }, involvedObject, reason: "Seen", message: "so it is",
    action: "Look", type: "Normal", eventTime, reportingComponent: "me", reportingInstance: "1",
  };
  await core.createNamespacedEvent({ namespace, body });
  const fieldSelector = "involvedObject.name=x";
  const { items } = await core.listNamespacedEvent({ namespace, fieldSelector });
  assert.deepEqual(items.map(({ message }) => message), ["so it is"]);
  const events = config.makeApiClient(k8s.EventsV1Api);
  const same = await events.readNamespacedEvent({ name: "x.1", namespace });
  assert.deepEqual([same.note, same.regarding.name], ["so it is", "x"]);
  assert.equal(same.eventTime, eventTime.toISOString());
}
