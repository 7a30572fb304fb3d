"""Objects that take long to go block no controller."""

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.pools import Pools

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key

pytestmark = pytest.mark.looptime


async def hold(c, view):
    """Let all objects of a kind take for ever to go."""
    for one in (await c.client.list(view, "default")).items:
        finalizers = [*one.metadata.finalizers, "example.com/slow"]
        await c.client.patch(view, one.key, {"metadata": {"finalizers": finalizers}})


async def test_a_set_scales_out_during_the_slow_deletion_of_a_vmi():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=3))
        await c.until_ready("test", 3)
        await hold(c, Machine)
        await c.scale("test", 2)

        async def goes():
            return [m for m in await c.machines() if m.metadata.deletion_timestamp]

        await c.until(goes, 5)
        await c.scale("test", 4)

        async def has_grown():
            status = (await c.replica_set("test")).status
            return status.ready_replicas == 4 and len(await c.machines()) == 5

        await c.until(has_grown, 5)


async def test_a_pool_scales_out_during_the_slow_deletion_of_a_vm():
    async with cluster() as c:
        web = Pools(c)
        await web.create(3)
        await web.until_ready(3)
        await hold(c, VirtualMachine)
        await web.patch(replicas=2)

        async def goes():
            return [v for v in (await web.vms()).values() if v.metadata.deletion_timestamp]

        await c.until(goes, 5)
        await web.patch(replicas=5)

        async def has_grown():
            return len(await web.names()) == 5

        await c.until(has_grown, 5)


async def test_a_pool_scales_out_during_the_slow_restart_of_a_vmi():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1)
        await web.until_ready(1)
        await hold(c, Machine)
        await web.image("cirros:2")

        async def goes():
            return [m for m in await c.machines() if m.metadata.deletion_timestamp]

        await c.until(goes, 5)
        await web.patch(replicas=2)

        async def has_grown():
            return len(await web.names()) == 2

        await c.until(has_grown, 5)


async def test_a_vm_updates_its_status_during_the_slow_deletion_of_its_vmi():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1)
        await web.until_ready(1)
        await hold(c, Machine)
        key = Key("default", "web-0")
        await c.client.patch(VirtualMachine, key, {"spec": {"runStrategy": "Halted"}})

        async def goes():
            return [m for m in await c.machines() if m.metadata.deletion_timestamp]

        await c.until(goes, 5)
        await c.client.delete(VirtualMachine, key)

        async def says_so():
            return (await web.vm(0)).status.printable_status == "Terminating"

        await c.until(says_so, 5)
