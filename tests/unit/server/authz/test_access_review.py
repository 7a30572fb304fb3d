"""Tests of questions about rights."""

import pytest
from tests.unit.server.authz.test_authorizer import bind, role, rule, user

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
SELF = f"{AUTHORIZATION}/selfsubjectaccessreviews"
OTHERS = f"{AUTHORIZATION}/subjectaccessreviews"
LOCAL = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
RULES = f"{AUTHORIZATION}/selfsubjectrulesreviews"
PODS = {"verb": "list", "resource": "pods", "namespace": "default"}


def review_of(resource=None, **spec):
    return {"spec": spec | ({"resourceAttributes": resource} if resource else {})}


@pytest.fixture
async def bob(ask, policy):
    await role(ask, "reader", rule("list", "pods"))
    await bind(ask, "bobs", "Role", "reader", user("bob"))
    return ask.as_user("bob")


async def test_every_user_can_review_their_own_access(bob):
    yes = await bob("POST", SELF, review_of(PODS))
    assert yes.status == 201
    assert (yes["kind"], yes["spec"]) == ("SelfSubjectAccessReview", {"resourceAttributes": PODS})
    assert yes["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "bobs/default" of Role "reader" to User "bob"',
    }
    no = await bob("POST", SELF, review_of(PODS | {"verb": "create"}))
    assert no["status"] == {"allowed": False}
    path = {"path": "/api", "verb": "get"}
    yes = await bob("POST", SELF, review_of(nonResourceAttributes=path))
    assert yes["status"]["reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
        'to Group "system:authenticated"'
    )


async def test_administrators_have_all_rights(ask):
    answer = await ask("POST", SELF, review_of({"verb": "brew", "resource": "tea"}))
    assert answer["status"] == {"allowed": True}


async def test_reviews_of_others_need_a_right(ask, bob):
    review = review_of(PODS, user="bob", groups=["devs"], extra={"scopes": ["a"]}, uid="7")
    assert (await ask("POST", OTHERS, review))["status"]["allowed"] is True
    assert (await ask("POST", LOCAL, review))["status"]["allowed"] is True
    by_group = review_of(PODS, groups=["system:masters"])
    assert (await ask("POST", OTHERS, by_group))["status"]["allowed"] is True
    eve = await ask("POST", OTHERS, review_of(PODS, user="eve"))
    assert eve["status"]["allowed"] is False
    component = await ask("POST", OTHERS, review_of(PODS, user="system:kube-controller-manager"))
    assert component["status"]["allowed"] is False
    for path in (OTHERS, LOCAL):
        assert (await bob("POST", path, review)).status == 403


async def test_rules_reviews_list_the_rules_in_a_namespace(bob):
    answer = await bob("POST", RULES, {"spec": {"namespace": "default"}, "status": {}})
    assert answer.status == 201
    status = answer["status"]
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in status["resourceRules"]
    assert any("/api/*" in each["nonResourceURLs"] for each in status["nonResourceRules"])
    assert status["incomplete"] is False
    elsewhere = await bob("POST", RULES, {"spec": {"namespace": "other"}})
    assert "pods" not in str(elsewhere["status"]["resourceRules"])


async def test_a_missing_role_makes_a_rules_review_incomplete(ask, bob):
    await bind(ask, "lost", "Role", "none", user("bob"))
    status = (await bob("POST", RULES, {"spec": {"namespace": "default"}}))["status"]
    assert status["incomplete"] is True
    assert status["evaluationError"] == 'RBAC: role.rbac.authorization.k8s.io "none" not found'
    no = await bob("POST", SELF, review_of(PODS | {"verb": "create"}))
    assert no["status"]["reason"] == status["evaluationError"]


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        (SELF, review_of(), 422, "exactly one of nonResourceAttributes or resourceAttributes"),
        (
            SELF,
            review_of(PODS, nonResourceAttributes={"path": "/"}),
            422,
            "cannot be specified in combination with resourceAttributes",
        ),
        (OTHERS, review_of(PODS), 422, "at least one of user or group must be specified"),
        (LOCAL, review_of(PODS | {"namespace": "x"}, user="bob"), 422, "must match metadata"),
        (
            LOCAL,
            review_of(nonResourceAttributes={"path": "/"}, user="bob"),
            422,
            "disallowed on this kind of request",
        ),
        (RULES, {"spec": {}}, 400, "no namespace on request"),
        (RULES, {}, 422, "Required value"),
        (SELF, {"kind": "Pod"}, 400, "the object provided is a Pod"),
    ],
)
async def test_invalid_reviews_are_rejected(ask, path, body, code, message):
    refused = await ask("POST", path, body)
    assert (refused.status, message in refused["message"]) == (code, True), refused["message"]


async def test_reviews_are_not_stored(ask):
    for path in (SELF, OTHERS, RULES):
        assert (await ask("GET", path)).status == 405
