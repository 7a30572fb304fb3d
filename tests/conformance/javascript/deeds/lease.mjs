import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function aLeaseHasOneHolder({ config, namespace }) {
  const leases = config.makeApiClient(k8s.CoordinationV1Api);
  const spec = {
    holderIdentity: "me", leaseDurationSeconds: 15,
    acquireTime: new k8s.V1MicroTime(), renewTime: new k8s.V1MicroTime(),
  };
  const body = { metadata: { name: "leader" }, spec };
  const mine = await leases.createNamespacedLease({ namespace, body });
  const again = leases.createNamespacedLease({ namespace, body });
  await assert.rejects(again, ({ code }) => code === 409);
  const lease = { name: "leader", namespace };
  const theirs = await leases.readNamespacedLease(lease);
  const renewTime = new k8s.V1MicroTime();
  mine.spec.renewTime = renewTime;
  const renewed = await leases.replaceNamespacedLease({ ...lease, body: mine });
  assert.equal(renewed.spec.renewTime, renewTime.toISOString());
  theirs.spec.holderIdentity = "you";
  const taken = leases.replaceNamespacedLease({ ...lease, body: theirs });
  await assert.rejects(taken, ({ code }) => code === 409);
}
