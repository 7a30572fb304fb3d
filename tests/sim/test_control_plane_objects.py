"""Objects of the control plane that clients expect are there, and come back."""

import asyncio
from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import Node
from lightkube.models.flowcontrol_v1 import FlowSchema, PriorityLevelConfiguration
from lightkube.models.networking_v1 import ServiceCIDR
from lightkube.models.storage_v1 import CSINode
from tests.sim.cluster import cluster

from corral.api.errors import NotFound
from corral.api.object import Key
from corral.cluster import control_plane_objects

pytestmark = pytest.mark.looptime

LOOP = control_plane_objects.controller(ip_network("10.96.0.0/16"), ip_network("fd00:10:96::/112"))
ALWAYS = [
    (ServiceCIDR, "kubernetes"),
    *((view, name) for view in (FlowSchema, PriorityLevelConfiguration)
      for name in ("exempt", "catch-all")),
]  # fmt: skip


async def get(c, view, name):
    try:
        return await c.client.get(view, name)
    except NotFound:
        return None


async def present(c, view, name, *, but=""):
    """The object, once it is there with another uid than ``but``."""
    found = []

    async def is_there():
        found[:] = [await get(c, view, name)]
        return found[0] is not None and found[0].metadata.uid != but

    await c.until(is_there)
    return found[0]


def condition(of):
    (one,) = (of.status and of.status.conditions) or [None]
    return one and (one.type, one.status, one.message)


async def test_the_service_cidr_exists_and_is_ready():
    async with cluster(stand_ins=[LOOP]) as c:
        made = await present(c, ServiceCIDR, "kubernetes")
        assert made.spec.cidrs == ["10.96.0.0/16", "fd00:10:96::/112"]

        async def is_ready():
            ready = ("Ready", "True", "Kubernetes default Service CIDR is ready")
            return condition(await get(c, ServiceCIDR, "kubernetes")) == ready

        await c.until(is_ready)


@pytest.mark.parametrize(("view", "name"), ALWAYS)
async def test_a_deleted_object_is_recreated(view, name):
    async with cluster(stand_ins=[LOOP]) as c:
        before = await present(c, view, name)
        await c.client.delete(view, Key("", name))
        again = await present(c, view, name, but=before.metadata.uid)
        assert again.spec == before.spec


async def test_a_changed_spec_is_restored_as_a_whole_and_labels_stay():
    async with cluster(stand_ins=[LOOP]) as c:
        before = await present(c, PriorityLevelConfiguration, "exempt")
        change = {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"limited": {"limitResponse": {"type": "Reject"}}, "type": "Limited"},
        }
        await c.client.patch(PriorityLevelConfiguration, Key("", "exempt"), change)

        async def is_restored():
            now = await get(c, PriorityLevelConfiguration, "exempt")
            return now.spec == before.spec and now.metadata.labels == {"team": "a"}

        await c.until(is_restored)


async def test_flow_schemas_name_levels_that_exist():
    async with cluster(stand_ins=[LOOP]) as c:
        for name, precedence in (("exempt", 1), ("catch-all", 10_000)):
            schema = await present(c, FlowSchema, name)
            level = schema.spec.priorityLevelConfiguration.name
            assert (level, schema.spec.matchingPrecedence) == (name, precedence)
            await present(c, PriorityLevelConfiguration, level)

            async def is_found(name=name):
                dangling = condition(await get(c, FlowSchema, name))
                return dangling is not None and dangling[:2] == ("Dangling", "False")

            await c.until(is_found)


async def test_each_node_has_a_csi_node_that_goes_and_comes_with_it():
    async with cluster(stand_ins=[LOOP], nodes=2) as c:
        for name in ("node0", "node1"):
            node, csi = await present(c, Node, name), await present(c, CSINode, name)
            assert csi.spec.drivers == []
            (owner,) = csi.metadata.ownerReferences
            assert (owner.kind, owner.name, owner.uid) == ("Node", name, node.metadata.uid)
        before = await get(c, CSINode, "node0")
        await c.client.delete(Node, Key("", "node0"))
        again = await present(c, CSINode, "node0", but=before.metadata.uid)
        node = await c.client.get(Node, "node0")
        assert again.metadata.ownerReferences[0].uid == node.metadata.uid


async def test_objects_of_others_are_left_alone_and_nothing_is_written_twice():
    async with cluster(stand_ins=[LOOP]) as c:
        for view, name in ALWAYS:
            await present(c, view, name)
        mine = await c.client.create(
            PriorityLevelConfiguration, {"metadata": {"name": "mine"}, "spec": {"type": "Exempt"}}
        )
        await asyncio.sleep(10)
        before = [await get(c, view, name) for view, name in ALWAYS]
        await asyncio.sleep(600)
        assert [await get(c, view, name) for view, name in ALWAYS] == before
        assert await get(c, PriorityLevelConfiguration, "mine") == mine
