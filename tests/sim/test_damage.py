"""A machine whose objects the disk has damaged runs on: what cannot be read is not gone."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key
from corral.store import Damaged

pytestmark = pytest.mark.looptime

INSTANCES = "virtualmachineinstances.kubevirt.io"


def damage(store, kind, key):
    """As a store is opened in which this object cannot be read."""
    record = store._memory.tables[kind].remove(key)
    found = Damaged(kind, record.key, (record.revision,))
    store._damaged._damaged[kind, record.key] = found


@pytest.mark.parametrize("kind", ["pods", INSTANCES])
async def test_a_damaged_object_stops_no_vmi(kind):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=1))
        await c.until_ready("test", 1)
        (machine,), (pod,) = await c.machines(), await c.pods()
        name = pod.metadata.name if kind == "pods" else machine.metadata.name
        await c.crash_loops()
        c.kill_agent("node0")
        await asyncio.sleep(1)  # it has let go of its guests
        damage(c.server.store, kind, Key("default", name))
        c.start_node("node0")
        c.start_loops()
        await asyncio.sleep(3600)
        assert len(c.guests(machine)) == 1
        await c.server.store.discard(kind, Key("default", name))
        await asyncio.sleep(3600)
        assert not c.guests(machine)
