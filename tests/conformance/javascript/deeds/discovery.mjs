import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function groupsAndTheirKinds({ config, core, custom }) {
  const { groups } = await config.makeApiClient(k8s.ApisApi).getAPIVersions();
  const pools = groups.find(({ name }) => name === "pool.kubevirt.io");
  assert.equal(pools.preferredVersion.groupVersion, "pool.kubevirt.io/v1beta1");
  assert.deepEqual((await config.makeApiClient(k8s.CoreApi).getAPIVersions()).versions, ["v1"]);
  const served = new Set((await core.getAPIResources()).resources.map(({ name }) => name));
  assert(served.isSupersetOf(new Set(["pods", "pods/exec", "pods/log", "pods/portforward"])));
  const { resources } = await custom.getAPIResources({ group: "kubevirt.io", version: "v1" });
  const sets = resources.find(({ name }) => name === "virtualmachineinstancereplicasets");
  assert.deepEqual(sets.shortNames, ["vmirs", "vmirss"]);
}
