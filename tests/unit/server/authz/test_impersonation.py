"""Tests of impersonation: each part of the impersonated user needs a right of its own."""

import pytest
from tests.unit.server.authz.test_authorizer import bind, role, user
from tests.unit.server.conftest import MAPS

from corral.api.request import Request
from corral.server.authz.impersonation import impersonated


def impersonate(resources, *names, group=""):
    rule = {"verbs": ["impersonate"], "apiGroups": [group], "resources": resources.split()}
    return rule | ({"resourceNames": list(names)} if names else {})


def headers(name="", **parts):
    named = {"impersonate-user": name} if name else {}
    return named | {f"impersonate-{part.replace('_', '-')}": value for part, value in parts.items()}


async def become(ask, **identity):
    """The user that an administrator's request is answered for."""
    request = Request(method="GET", path=MAPS, headers=headers(**identity), user=ask.user)
    return impersonated(ask.server.authorizer, request, ask.user)


async def test_a_right_to_impersonate_one_user_is_for_that_user_only(ask):
    await role(ask, "actor", impersonate("users", "eve"), namespace="")
    await bind(ask, "bobs", "ClusterRole", "actor", user("bob"), namespace="")
    bob = ask.as_user("bob")
    refused = await bob("GET", MAPS, headers=headers("eve"))
    assert 'User "eve" cannot list' in refused["message"]
    refused = await bob("GET", MAPS, headers=headers("root"))
    assert refused["message"] == (
        'users "root" is forbidden: User "bob" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    refused = await bob("GET", MAPS, headers=headers("eve", group="system:masters"))
    assert refused["message"] == (
        'groups "system:masters" is forbidden: User "bob" cannot impersonate resource "groups" in '
        'API group "" at the cluster scope'
    )


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({"group": "devs"}, impersonate("groups", "devs")),
        ({"uid": "7"}, impersonate("uids", "7", group="authentication.k8s.io")),
        (
            {"extra_scopes": "a"},
            impersonate("userextras/scopes", "a", group="authentication.k8s.io"),
        ),
    ],
)
async def test_each_part_of_the_impersonated_user_needs_a_right(ask, parts, rule):
    await role(ask, "actor", impersonate("users"), namespace="")
    await bind(ask, "bobs", "ClusterRole", "actor", user("bob"), namespace="")
    bob = ask.as_user("bob")
    refused = await bob("GET", MAPS, headers=headers("eve", **parts))
    assert "cannot impersonate" in refused["message"]
    await role(ask, "more", rule, namespace="")
    await bind(ask, "more", "ClusterRole", "more", user("bob"), namespace="")
    refused = await bob("GET", MAPS, headers=headers("eve", **parts))
    assert 'User "eve" cannot list' in refused["message"]


async def test_impersonating_a_service_account_needs_a_right_in_its_namespace(ask):
    await role(ask, "actor", impersonate("serviceaccounts"))
    await bind(ask, "bobs", "Role", "actor", user("bob"))
    bob = ask.as_user("bob")
    refused = await bob("GET", MAPS, headers=headers("system:serviceaccount:default:robot"))
    assert "cannot list" in refused["message"]
    refused = await bob("GET", MAPS, headers=headers("system:serviceaccount:other:robot"))
    assert refused["message"] == (
        'serviceaccounts "robot" is forbidden: User "bob" cannot impersonate resource '
        '"serviceaccounts" in API group "" in the namespace "other"'
    )


async def test_an_impersonated_user_has_its_implied_groups(ask):
    robot = await become(ask, name="system:serviceaccount:default:robot")
    assert robot.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    assert (await become(ask, name="eve")).groups == ("system:authenticated",)
    nobody = await become(ask, name="system:anonymous")
    assert nobody.groups == ("system:unauthenticated",)
    eve = await become(ask, name="eve", group="a\nb, c", uid="7", extra_example_com_2fscopes="x\ny")
    assert (eve.groups, eve.uid) == (("a", "b, c", "system:authenticated"), "7")
    assert dict(eve.extra) == {"example-com-2fscopes": ("x", "y")}


async def test_impersonating_a_component_grants_no_rights_of_components(ask):
    """Components are known by where they come from: a name gives nobody their rights."""
    for name in ("system:kube-controller-manager", "system:node:one"):
        assert (await ask("GET", MAPS, headers=headers(name))).status == 403


async def test_too_many_parts_to_impersonate_are_rejected(ask):
    refused = await ask("GET", MAPS, headers=headers("eve", group="\n".join("g" * 2000)))
    assert refused.status == 400
