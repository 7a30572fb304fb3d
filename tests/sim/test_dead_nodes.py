"""Nodes that die: what is replaced, when, and what waits."""

import asyncio

import pytest
from lightkube.models.core_v1 import Node
from tests.sim.cluster import cluster, replica_set
from tests.sim.pools import pool

from corral.api.kinds.core.node_taints import NOT_READY, OUT_OF_SERVICE, UNREACHABLE
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key

pytestmark = pytest.mark.looptime
NODE = Key("", "node0")


def tolerations(seconds):
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in (NOT_READY, UNREACHABLE)
    ]


def tolerating(seconds, **spec):
    document = replica_set(**spec)
    if seconds is not None:
        document["spec"]["template"]["spec"]["tolerations"] = tolerations(seconds)
    return document


async def running(c, node):
    return [
        each
        for each in await c.machines()
        if each.status.phase == "Running" and each.status.node_name == node
    ]


async def taints(c):
    return {each.key for each in (await c.client.get(Node, NODE.name)).spec.taints or ()}


async def spread(c, document, kind=ReplicaSet, count=4):
    """Create a set with machines on both of two nodes."""
    await c.client.create(kind, document)

    async def all_run():
        found = [len(await running(c, name)) for name in ("node0", "node1")]
        return sum(found) == count and all(found)

    await c.until(all_run)


@pytest.mark.parametrize(("seconds", "within"), [(0, 45), (30, 75), (None, 345)])
async def test_vmis_of_a_dead_node_are_replaced_after_their_toleration_seconds(seconds, within):
    async with cluster(nodes=2) as c:
        await spread(c, tolerating(seconds, replicas=4))
        c.kill_agent("node0")
        await asyncio.sleep(within - 17)
        assert len(await running(c, "node1")) < 4
        await asyncio.sleep(17)

        async def are_replaced():
            return len(await running(c, "node1")) == 4

        await c.until(are_replaced, 3)
        assert await taints(c) == {UNREACHABLE}


async def test_a_node_that_is_back_in_time_keeps_its_vmis():
    async with cluster(nodes=2) as c:
        await spread(c, tolerating(60, replicas=4))
        before = {each.metadata.uid for each in await c.machines()}
        c.kill_agent("node0")
        await asyncio.sleep(70)
        assert await taints(c) == {UNREACHABLE}
        c.start_node("node0")
        await asyncio.sleep(120)
        assert await taints(c) == set()
        assert {each.metadata.uid for each in await c.machines()} == before


async def test_a_node_that_is_back_late_stops_replaced_machines():
    async with cluster(nodes=2) as c:
        await spread(c, tolerating(0, replicas=4))
        lost = await running(c, "node0")
        c.kill_agent("node0")
        await asyncio.sleep(60)
        c.start_node("node0")
        await c.until_ready("test", 4)
        assert not any(c.guests(each) for each in lost)


async def test_taints_of_users_evict_at_once():
    async with cluster(nodes=2) as c:
        await spread(c, replica_set(replicas=4))
        taint = {"key": "repair", "effect": "NoExecute"}
        await c.client.patch(Node, NODE, {"spec": {"taints": [taint]}})

        async def are_moved():
            return len(await running(c, "node1")) == 4

        await c.until(are_moved, 20)


async def _dead_with_members(c):
    await spread(c, pool(replicas=4, spec={"tolerations": tolerations(0)}), Pool)
    c.kill_agent("node0")
    await asyncio.sleep(120)
    assert len(await running(c, "node1")) < 4


async def test_vms_of_pools_wait_until_the_node_is_deleted():
    async with cluster(nodes=2) as c:
        await _dead_with_members(c)
        await c.client.delete(Node, NODE)

        async def are_replaced():
            return len(await running(c, "node1")) == 4

        await c.until(are_replaced, 20)


async def test_vms_of_pools_wait_until_the_node_is_out_of_service():
    async with cluster(nodes=2) as c:
        await _dead_with_members(c)
        present = [
            {"key": UNREACHABLE, "effect": "NoExecute"},
            {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"},
        ]
        await c.client.patch(Node, NODE, {"spec": {"taints": present}})

        async def are_replaced():
            return len(await running(c, "node1")) == 4

        await c.until(are_replaced, 20)
