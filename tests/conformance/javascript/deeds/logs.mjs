import assert from "node:assert/strict";
import { PassThrough } from "node:stream";

import k8s from "../client.mjs";
import { MACHINES, allOf, podOfAMachine } from "../kinds.mjs";

const CONTAINER = "guest-console-log";

export async function theConsoleOfAMachine(context) {
  const { config, namespace } = context;
  const pod = await podOfAMachine(context);
  const log = new k8s.Log(config);
  const said = new PassThrough();
  await log.log(namespace, pod, CONTAINER, said, { tailLines: 5, timestamps: true });
  assert.equal(await allOf(said), ""); // simulated machines print nothing by themselves
  const refused = log.log(namespace, pod, "nosuch", new PassThrough());
  await assert.rejects(refused, ({ code }) => code === 400);
}

export async function theConsoleIsFollowedToItsEnd(context) {
  const { config, custom, namespace, manifests } = context;
  const pod = await podOfAMachine(context);
  const said = new PassThrough();
  await new k8s.Log(config).log(namespace, pod, CONTAINER, said, { follow: true });
  const { name } = manifests.machine.metadata;
  await custom.deleteNamespacedCustomObject({ ...MACHINES, namespace, name });
  assert.equal(await allOf(said), "");
}
