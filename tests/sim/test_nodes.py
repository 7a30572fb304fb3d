"""Nodes that somebody deletes, and nodes that are played only for what they still have."""

import asyncio

import pytest
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Namespace, Node
from structlog.testing import capture_logs
from tests.sim.cluster import cluster, replica_set
from tests.sim.hosts import Joined

from corral.api.errors import NotFound
from corral.api.kinds.core import node_lease
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key
from corral.node.status.node_status import CLOCK_CONDITION, RENEW_SECONDS, RETIRED, retirement

pytestmark = pytest.mark.looptime
NODE = Key("", "node0")


async def names(c):
    return {each.metadata.name for each in (await c.client.list(Node)).items}


async def test_a_deleted_node_is_recreated_with_its_machines_and_addresses():
    async with cluster() as c:
        ranges = {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}
        await c.until(lambda: exists(c))
        await c.client.patch(Node, NODE, {"spec": ranges})
        await c.client.create(ReplicaSet, replica_set())
        await c.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await c.machines()}
        first = await c.client.get(Node, NODE.name)
        await c.client.delete(Node, NODE)
        await asyncio.sleep(1)
        again = await c.client.get(Node, NODE.name)
        assert again.metadata.uid != first.metadata.uid
        assert again.spec.podCIDRs == ["10.244.0.0/24"]
        await asyncio.sleep(120)
        assert {machine.metadata.uid for machine in await c.machines()} == before
        await c.scale("test", 4)
        await c.until_ready("test", 4)


async def exists(c):
    return NODE.name in await names(c)


async def test_a_deleted_lease_is_recreated():
    async with cluster() as c:
        await c.until(lambda: exists(c))
        await asyncio.sleep(1)
        await c.client.delete(Lease, Key(node_lease.NAMESPACE, NODE.name))
        await asyncio.sleep(15)
        assert await c.client.get(Lease, NODE.name, node_lease.NAMESPACE)


async def test_a_retired_node_is_removed_with_its_last_machine():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        c.kill_agent("node0")
        await c.client.patch(Node, NODE, retirement(retired=True))
        c.start_node("node0", retired=True)
        c.start_node("node1")
        await asyncio.sleep(60)
        assert await names(c) == {"node0", "node1"}
        await c.client.delete(Node, NODE)  # it is there again, and takes no machines
        await asyncio.sleep(1)
        again = await c.client.get(Node, NODE.name)
        assert again.spec.unschedulable is True
        assert again.metadata.annotations[RETIRED] == "true"
        await c.scale("test", 0)

        async def is_gone():
            return await names(c) == {"node1"}

        await c.until(is_gone, 60)
        await asyncio.sleep(60)
        assert await names(c) == {"node1"}
        await c.scale("test", 1)
        await c.until_ready("test", 1)


async def test_a_retired_node_without_machines_is_removed_at_once():
    async with cluster() as c:
        c.start_node("old", retired=True)
        await asyncio.sleep(5)
        assert await names(c) == {"node0"}


@pytest.mark.parametrize("name", ["kubevirt", "kube-node-lease"])
async def test_a_deleted_system_namespace_is_recreated(name):
    async with cluster(about_itself=True) as c:
        await asyncio.sleep(5)
        first = await c.client.get(Namespace, name)
        await c.client.delete(Namespace, Key("", name))

        async def is_new():
            try:
                return (await c.client.get(Namespace, name)).metadata.uid != first.metadata.uid
            except NotFound:
                return False

        await c.until(is_new, 30)
        await asyncio.sleep(15)
        assert (await c.client.get(KubeVirt, KEY.name, KEY.namespace)).status.phase == "Deployed"
        assert await c.client.get(Lease, NODE.name, node_lease.NAMESPACE)


@pytest.mark.parametrize(
    ("step", "words"), [(600, "10 minutes ahead of"), (-600, "10 minutes behind")]
)
async def test_a_clock_that_steps_is_in_the_log_and_on_the_node_soon(step, words):
    host = Joined()
    async with cluster(joined={NODE.name: host}) as c:
        await c.until(lambda: exists(c))
        await c.until(lambda: clock_is(c, "True"))
        with capture_logs() as logs:
            host.skew = step
            await c.until(lambda: clock_is(c, "False"), 2 * RENEW_SECONDS)
            await asyncio.sleep(10 * RENEW_SECONDS)
            host.skew = 0
            await c.until(lambda: clock_is(c, "True"), 2 * RENEW_SECONDS)
        said = [each for each in logs if each.get("part") == "the clock of this host"]
        assert [each["log_level"] for each in said] == ["warning", "info"]
        assert words in said[0]["problem"]


async def clock_is(c, status):
    """Return whether the node is Ready, and its condition of the clock has a status."""
    node = await c.client.get(Node, NODE.name)
    conditions = {each.type: each.status for each in node.status.conditions}
    return (conditions["Ready"], conditions[CLOCK_CONDITION]) == ("True", status)
