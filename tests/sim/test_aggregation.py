"""ClusterRoles that are made of others hold the rules of these, whatever becomes of them."""

import asyncio

import pytest
from lightkube.models.rbac_v1 import ClusterRole, RoleBinding
from tests.sim.cluster import Faults, cluster

from corral.api.object import Key
from corral.api.request import User
from corral.daemon.rbac import reconcile_rbac
from corral.server.authz import Attributes

pytestmark = pytest.mark.looptime

SUM = {
    "metadata": {"name": "sum", "labels": {"part-of": "all"}},
    "aggregationRule": {
        "clusterRoleSelectors": [{"matchLabels": {"part-of": "sum"}}, {"matchLabels": {"x": "y"}}]
    },
}
ALL = {
    "metadata": {"name": "all"},
    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "all"}}]},
}


def part(name, resource, **labels):
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": [resource]}
    return {"metadata": {"name": name, "labels": labels}, "rules": [rule]}


async def resources(c, name):
    role = await c.client.get(ClusterRole, name)
    return [resource for rule in role.rules or () for resource in rule.resources]


def until_role_has(c, name, *expected):
    async def so():
        return await resources(c, name) == list(expected)

    return c.until(so)


async def test_an_aggregated_role_follows_its_parts():
    async with cluster(about_itself=True) as c:
        for role in (ALL, SUM, part("b", "pods", **{"part-of": "sum"}), part("a", "nodes", x="y")):
            await c.client.create(ClusterRole, role)
        await until_role_has(c, "sum", "nodes", "pods")
        await until_role_has(c, "all", "nodes", "pods")
        await c.client.patch(ClusterRole, Key("", "a"), {"metadata": {"labels": {"x": None}}})
        await until_role_has(c, "all", "pods")
        await c.client.patch(ClusterRole, Key("", "sum"), {"rules": part("", "secrets")["rules"]})
        await until_role_has(c, "sum", "pods")
        await c.client.delete(ClusterRole, Key("", "b"))
        await until_role_has(c, "all")


async def test_rules_are_aggregated_in_spite_of_faults():
    async with cluster(
        about_itself=True, faults=Faults(seed=7, fail=0.2, lose_answer=0.2, cut=0.2, delay=2)
    ) as c:
        for role in (ALL, SUM, *(part(f"p{n}", f"thing{n}", x="y") for n in range(9))):
            await c.client.create(ClusterRole, role)
        await until_role_has(c, "all", *(f"thing{n}" for n in range(9)))


async def test_default_roles_are_written_once():
    """Rules aggregated at the start are those of the controller, which writes nothing more."""
    async with cluster(about_itself=True) as c:
        await reconcile_rbac(c.client)
        revision = c.server.store.last_changed("clusterroles.rbac.authorization.k8s.io")
        await asyncio.sleep(5)
        assert c.server.store.last_changed("clusterroles.rbac.authorization.k8s.io") == revision
        await c.client.create(
            ClusterRole,
            part("mine", "widgets", **{"rbac.authorization.k8s.io/aggregate-to-view": "true"}),
        )
        eve = Attributes(User(name="eve"), "get", "", "widgets", "", "default", "x")

        async def may():
            return c.server.authorizer.allows(eve)

        binding = {
            "metadata": {"name": "eves", "namespace": "default"},
            "roleRef": {"kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "User", "name": "eve"}],
        }
        await c.client.create(RoleBinding, binding)
        await c.until(may)
