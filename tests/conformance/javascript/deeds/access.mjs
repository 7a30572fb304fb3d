import assert from "node:assert/strict";

import k8s from "../client.mjs";

export async function whatOneMayAndWhoOneIs({ config }) {
  const authorization = config.makeApiClient(k8s.AuthorizationV1Api);
  const resourceAttributes = { verb: "delete", resource: "secrets", namespace: "default" };
  const body = { spec: { resourceAttributes } };
  const { status } = await authorization.createSelfSubjectAccessReview({ body });
  assert.equal(status.allowed, true);
  const authentication = config.makeApiClient(k8s.AuthenticationV1Api);
  const review = await authentication.createSelfSubjectReview({ body: {} });
  assert(review.status.userInfo.groups.includes("system:masters"));
}

export async function anAccountMayWhatItsRoleSays({ config, core, namespace }) {
  const roles = config.makeApiClient(k8s.RbacAuthorizationV1Api);
  const metadata = { name: "reader" };
  const rules = [{ apiGroups: [""], resources: ["secrets"], verbs: ["get", "list"] }];
  const subjects = [{ kind: "ServiceAccount", name: "reader", namespace }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "reader" };
  await core.createNamespacedServiceAccount({ namespace, body: { metadata } });
  await roles.createNamespacedRole({ namespace, body: { metadata, rules } });
  await roles.createNamespacedRoleBinding({ namespace, body: { metadata, subjects, roleRef } });
  const request = { spec: { audiences: [], expirationSeconds: 600 } };
  const { status } = await core.createNamespacedServiceAccountToken({
    name: "reader", namespace, body: request,
  });
  const theirs = new k8s.KubeConfig();
  const user = { name: "reader", token: status.token };
  theirs.loadFromClusterAndUser(config.getCurrentCluster(), user);
  const reader = theirs.makeApiClient(k8s.CoreV1Api);
  assert.deepEqual((await reader.listNamespacedSecret({ namespace })).items, []);
  await assert.rejects(reader.listNamespacedPod({ namespace }), ({ code, body }) => {
    assert.match(body, /cannot list resource/);
    return code === 403;
  });
  const authorization = theirs.makeApiClient(k8s.AuthorizationV1Api);
  const asked = { body: { spec: { namespace } } };
  const { resourceRules } = (await authorization.createSelfSubjectRulesReview(asked)).status;
  assert(resourceRules.some(({ resources }) => resources.includes("secrets")));
}
