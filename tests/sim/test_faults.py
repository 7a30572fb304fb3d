"""Faults of all kinds: in the end there are as many VMIs as desired."""

import asyncio

import pytest
from tests.sim.cluster import Faults, cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.reconcile.objects import version_of

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]


@pytest.mark.parametrize("seed", range(12))
async def test_sets_converge_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.05, double=0.1, until=40)
    async with cluster(nodes=2, faults=faults) as c:
        await c.client.create(ReplicaSet, replica_set("test", 10))
        for replicas in (4, 15, 7):
            await asyncio.sleep(faults.dice.uniform(0, 8))
            await c.scale("test", replicas)
            for machine in (await c.machines())[: faults.dice.randrange(3)]:
                await c.client.delete(type(machine), machine.key)
        await asyncio.sleep(max(0.0, faults.until - asyncio.get_running_loop().time()))
        await c.until_ready("test", 7, 400)


@pytest.mark.parametrize("seed", range(8))
async def test_sets_converge_in_spite_of_crashes(seed):
    faults = Faults(seed, delay=0.1)
    async with cluster(faults=faults) as c:
        await c.client.create(ReplicaSet, replica_set("test", 12))
        for replicas in (12, 3, 9):
            await c.scale("test", replicas)
            await asyncio.sleep(faults.dice.uniform(0, 0.5))
            await c.crash_loops()
            await asyncio.sleep(faults.dice.uniform(0, 5))
            c.start_loops()
        await c.until_ready("test", 9, 400)


@pytest.mark.parametrize("seed", range(4))
async def test_no_excess_vmi_is_created(seed):
    """A cache that lags never makes a set overshoot: creations are expected, then counted."""
    faults = Faults(seed, delay=1.0, double=0.3)
    async with cluster(faults=faults) as c:
        await c.client.create(ReplicaSet, replica_set("test", 20))
        most = 0

        async def converged():
            nonlocal most
            most = max(most, len(await c.machines()))
            return (await c.replica_set("test")).status.ready_replicas == 20

        await c.until(converged, 300)
        assert most == 20


@pytest.mark.parametrize("seed", range(8))
async def test_vmis_start_and_stop_in_spite_of_crashes_of_their_node(seed):
    faults = Faults(seed)
    async with cluster(faults=faults) as c:
        await c.client.create(ReplicaSet, replica_set("test", 8))
        for replicas in (8, 2, 6):
            await c.scale("test", replicas)
            for _ in range(3):
                await asyncio.sleep(faults.dice.uniform(0, 0.3))
                c.kill_agent("node0")
                await asyncio.sleep(faults.dice.uniform(0, 3))
                c.start_node("node0")
        await c.until_ready("test", 6, 400)
        assert {machine.status.phase for machine in await c.machines()} == {"Running"}


async def test_a_restarted_manager_finds_the_same_vmis():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 5))
        await c.until_ready("test", 5)
        await asyncio.sleep(60)
        before = {(m.metadata.name, m.metadata.uid) for m in await c.machines()}
        revision = c.server.store.revision
        c.kill_agent("node0")
        await c.crash_loops()
        await asyncio.sleep(3600)
        c.start_loops()
        c.start_node("node0")
        await asyncio.sleep(600)
        after = {(m.metadata.name, m.metadata.uid) for m in await c.machines()}
        assert after == before
        await c.until_ready("test", 5)
        assert all(int(version_of(pod)) <= revision for pod in await c.pods())
