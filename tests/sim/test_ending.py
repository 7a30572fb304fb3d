"""Grace periods of guests that are requested to end: one that has not booted hears nothing."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.hosts import Joined

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.node.hollow.hypervisor import Behaviour
from corral.node.hypervisor import Change

pytestmark = pytest.mark.looptime

GRACE_SECONDS = 30


async def ends_after(c, machine):
    """Return the time from the deletion of a machine until it is gone."""
    began = asyncio.get_running_loop().time()
    await c.client.delete(Machine, machine.key)

    async def is_gone():
        return machine.metadata.uid not in {one.metadata.uid for one in await c.machines()}

    await c.until(is_gone)
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize(
    ("boot_seconds", "shutdown_seconds", "least", "most"),
    [(1000, 1000, 0, 2), (1, 4, 4, 6), (1, 1000, GRACE_SECONDS - 1, GRACE_SECONDS + 2)],
    ids=["has not come up", "obeys", "is up, and obeys nobody"],
)
async def test_the_grace_period_begins_once_the_guest_is_up(
    boot_seconds, shutdown_seconds, least, most
):
    async with cluster() as c:
        behaviour = Behaviour(boot_seconds=boot_seconds, shutdown_seconds=shutdown_seconds)
        c._hypervisors["node0"].behaviour = behaviour
        document = replica_set("test", 1)
        document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        await c.client.create(ReplicaSet, document)
        await c.until_ready("test", 1)
        (machine,) = await c.machines()
        await asyncio.sleep(5)
        c.guest(machine).happen(Change.AGENT_DISCONNECTED)  # it is up without one
        await asyncio.sleep(0)
        assert least <= await ends_after(c, machine) <= most
        killed = [
            each.message for each in await c.events(machine.key.name) if each.reason == "Deleted"
        ]
        assert killed == (["Signaled Deletion"] if least > 10 else [])


@pytest.mark.parametrize("skew", [-600.0, 600.0])
async def test_a_guest_shuts_down_on_a_host_whose_clock_is_off_by_minutes(skew):
    async with cluster(joined={"node0": Joined(skew=skew)}) as c:
        c._hypervisors["node0"].behaviour = Behaviour(shutdown_seconds=8)
        document = replica_set("test", 1)
        document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        await c.client.create(ReplicaSet, document)
        await c.until_ready("test", 1)
        (machine,) = await c.machines()
        await asyncio.sleep(5)
        assert 8 <= await ends_after(c, machine) <= 12
