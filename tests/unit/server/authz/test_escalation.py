"""Tests that nobody gives rights away that they do not have."""

import pytest
from tests.unit.server.authz.test_authorizer import RBAC, bind, role, rule, user

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
ALL = "create update patch delete get"


def rbac(verbs, resources, **fields):
    return rule(verbs, resources, apiGroups=["rbac.authorization.k8s.io"], **fields)


@pytest.fixture
async def bob(ask):
    """May write roles and bindings, read pods, and read the secret ``mine``; in one namespace."""
    await role(
        ask,
        "writer",
        rbac(ALL, "roles rolebindings"),
        rule("get list", "pods"),
        rule("get", "secrets", resourceNames=["mine"]),
    )
    await bind(ask, "bobs", "Role", "writer", user("bob"))
    return ask.as_user("bob")


async def write(asker, *rules, name="new"):
    return await asker("POST", ROLES, {"metadata": {"name": name}, "rules": list(rules)})


@pytest.mark.parametrize(
    "held",
    [
        rule("get", "pods"),
        rule("get list", "pods"),
        rule("get", "secrets", resourceNames=["mine"]),
        rbac("create", "roles"),
    ],
)
async def test_users_can_grant_rights_that_they_have(bob, held):
    assert (await write(bob, held)).status == 201


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        (rule("get watch", "pods"), '{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}'),
        (
            rule("get delete watch", "pods services"),
            (
                '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}\n'
                '{APIGroups:[""], Resources:["services"], Verbs:["get" "delete" "watch"]}'
            ),
        ),
        (rule("*", "pods"), '{APIGroups:[""], Resources:["pods"], Verbs:["*"]}'),
        (rule("get", "*"), '{APIGroups:[""], Resources:["*"], Verbs:["get"]}'),
        (rule("get", "pods/log"), '{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}'),
        (rule("get", "secrets"), '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'),
        (
            rule("get", "secrets", resourceNames=["mine", "others"]),
            '{APIGroups:[""], Resources:["secrets"], ResourceNames:["others"], Verbs:["get"]}',
        ),
        (
            rule("get", "pods", apiGroups=["", "*"]),
            '{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}',
        ),
    ],
)
async def test_users_cannot_grant_rights_that_they_lack(bob, granted, missing):
    refused = await write(bob, granted)
    assert refused.status == 403
    assert refused["message"] == (
        'roles.rbac.authorization.k8s.io "new" is forbidden: user "bob" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        f"held:\n{missing}"
    )
    assert refused["details"]["name"] == "new"


async def test_added_rules_are_checked_and_removed_or_unchanged_ones_are_not(ask, bob):
    await role(ask, "big", rule("get watch", "pods"), rule("get", "nodes"))
    path = f"{ROLES}/big"
    assert (await bob.patch(path, {"rules": [rule("get", "pods")]})).status == 200
    assert (await bob.patch(path, {"rules": [rule("watch", "pods")]})).status == 403
    await ask.patch(path, {"rules": [rule("watch", "pods")]})
    assert (await bob.patch(path, {"rules": [rule("watch", "pods")]})).status == 200
    assert (await bob.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 403
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    assert (await bob.patch(path, finalizers)).status == 200


async def test_the_verb_escalate_allows_granting_any_right(ask, bob):
    await role(ask, "escalator", rbac("escalate", "roles"))
    await bind(ask, "more", "Role", "escalator", user("bob"))
    assert (await write(bob, rule("*", "*"))).status == 201


async def test_binding_a_role_needs_its_rights_or_the_verb_bind(ask, bob):
    async def give(kind, name):
        body = {
            "metadata": {"generateName": "new-"},
            "roleRef": {"kind": kind, "name": name},
            "subjects": [user("eve")],
        }
        return await bob("POST", BINDINGS, body)

    await role(ask, "small", rule("get", "pods"))
    await role(ask, "small", rule("get", "pods"), namespace="")
    await role(ask, "big", rule("get", "nodes"), namespace="")
    assert (await give("Role", "small")).status == 201
    assert (await give("ClusterRole", "small")).status == 201
    refused = await give("ClusterRole", "big")
    assert refused.status == 403
    assert '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}' in refused["message"]
    missing = await give("ClusterRole", "none")
    assert (missing.status, missing["message"]) == (
        404,
        'clusterrole.rbac.authorization.k8s.io "none" not found',
    )
    await role(ask, "binder", rbac("bind", "clusterroles", resourceNames=["big", "none"]))
    await bind(ask, "more", "Role", "binder", user("bob"))
    assert (await give("ClusterRole", "big")).status == 201
    assert (await give("ClusterRole", "none")).status == 201


async def test_aggregation_rules_need_all_rights(ask):
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    await role(ask, "all", everything, namespace="")
    await bind(ask, "bobs", "ClusterRole", "all", user("bob"), namespace="")
    bob = ask.as_user("bob")
    cluster_role = {
        "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    }
    # who may do everything with resources may escalate, too: the check is for those who may not
    assert (await bob("POST", CLUSTER_ROLES, cluster_role)).status == 201
    await role(ask, "writer", rbac(ALL, "clusterroles"), namespace="")
    await bind(ask, "eves", "ClusterRole", "writer", user("eve"), namespace="")
    eve = ask.as_user("eve")
    refused = await eve("POST", CLUSTER_ROLES, cluster_role | {"metadata": {"name": "other"}})
    assert refused["message"] == (
        'clusterroles.rbac.authorization.k8s.io "other" is forbidden: must have cluster-admin '
        "privileges to use an aggregationRule"
    )
    refused = await eve.patch(f"{CLUSTER_ROLES}/sum", {"aggregationRule": None})
    assert refused.status == 403


async def test_a_role_with_too_many_rights_is_rejected_at_once(bob):
    many = [f"thing{number}" for number in range(300)]
    endless = {"verbs": many, "apiGroups": many, "resources": many}
    refused = await write(bob, endless)
    assert refused.status == 403
    assert "it holds more than 10000 single rights" in refused["message"]
    some = {"verbs": ["get"], "apiGroups": [""], "resources": many}
    refused = await write(bob, some)
    assert refused["message"].endswith("\nand 200 more")


async def test_roles_with_too_many_comparisons_are_rejected(ask, bob):
    many = [rule("get", "pods", resourceNames=[f"p{number}"]) for number in range(1000)]
    await role(ask, "many", *many)
    await bind(ask, "more", "Role", "many", user("bob"))
    assert (await write(bob, rule("get", "pods", resourceNames=["p7", "p999"]))).status == 201
    verbs = " ".join(f"v{number}" for number in range(9999))
    refused = await write(bob, rule(verbs, "pods"), name="endless")
    assert refused.status == 403
    assert refused["message"].endswith("too many to compare: put yours together into fewer")


async def test_the_number_of_rules_of_a_role_is_limited(ask):
    rules = [rule("get", "pods")] * 1001
    refused = await ask("POST", ROLES, {"metadata": {"name": "a"}, "rules": rules})
    assert refused.status == 422
    assert "rules: Too many: 1001: must have at most 1000 items" in refused["message"]
    assert len(refused["details"]["causes"]) == 1
