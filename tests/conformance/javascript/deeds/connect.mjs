import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function itConnects({ config }) {
  const version = await config.makeApiClient(k8s.VersionApi).getCode();
  assert.match(version.gitVersion, /^v1\./);
}

export async function theServerIsHealthy({ config }) {
  const health = new k8s.Health(config);
  assert.deepEqual(await Promise.all([health.readyz({}), health.livez({})]), [true, true]);
}
