"""Warm pools whose spares are paused until they are handed out."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.migrations import in_phase, migrate, movable_set
from tests.sim.vm_claims import becomes, create, machine_of
from tests.sim.warm_pools import (
    POOL,
    boot,
    members,
    paused,
    pool_of,
    spares,
    uids,
    until_members,
    until_spares,
    warm_pool,
)

from corral.api.kinds.corral.spare_state import SPARE_STATE, is_paused_spare
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]
AT_ONCE = 2.0


async def until_paused(c, count):
    async def are_paused():
        found = await spares(c)
        return len(found) == count == len(await paused(c)) and all(map(is_paused_spare, found))

    await until_spares(c, count)
    await c.until(are_paused)


async def with_paused(c, replicas=1, *, spares=2, **spec):
    boot(c, boot_seconds=5)
    await c.client.create(ReplicaSet, replica_set("test", replicas))
    await c.client.create(WarmPool, warm_pool(spares, state="Paused", **spec))
    await until_members(c, replicas)
    await until_paused(c, spares)


async def user_pauses(c, vmi):
    await (
        c.agents[vmi.status.node_name].index.machine_of_instance(vmi.key, vmi.metadata.uid).pause()
    )


async def test_paused_spares_are_ready_to_be_handed_out_and_go_on_then():
    async with cluster() as c:
        await with_paused(c)
        assert [each.reason for each in (await pool_of(c)).status.conditions] == ["SparesReady"]
        before = uids(await spares(c))
        await c.scale("test", 3)
        await until_members(c, 3, AT_ONCE)
        given = await members(c)
        assert before < uids(given)
        assert not await paused(c) & before
        for vmi in given:
            assert SPARE_STATE not in vmi.metadata.annotations
        clocks = [c.guest(vmi).agent.clock for vmi in given if vmi.metadata.uid in before]
        assert all(clocks)
        await until_paused(c, 2)


async def test_a_claimed_spare_goes_on_and_runs_its_user_data():
    async with cluster() as c:
        await with_paused(c)
        await create(c, userData={"inline": "#!/bin/sh\n"})
        claim = await becomes(c, "Ready", "True", "MachineReady", seconds=AT_ONCE)
        vmi = await machine_of(c, claim)
        assert await c.guest(vmi).runs()
        assert [typed for _, typed in c.guest(vmi).agent.runs] == [b"#!/bin/sh\n"]


async def test_a_changed_state_pauses_spares_and_has_them_run_on():
    async with cluster() as c:
        await with_paused(c)
        before = uids(await spares(c))
        await c.client.patch(WarmPool, POOL, {"spec": {"state": "Running"}})

        async def all_run():
            return not await paused(c)

        await c.until(all_run, AT_ONCE)
        await until_spares(c, 2)
        await c.client.patch(WarmPool, POOL, {"spec": {"state": "Paused"}})
        await until_paused(c, 2)
        assert uids(await spares(c)) == before


async def test_a_spare_that_a_user_has_paused_is_not_handed_out_and_stays_paused():
    async with cluster() as c:
        await with_paused(c)
        theirs, _ = await spares(c)
        await user_pauses(c, theirs)

        async def is_theirs():
            return (await pool_of(c)).status.ready_replicas == 1

        await c.until(is_theirs)
        await c.scale("test", 3)
        await until_members(c, 3)
        assert theirs.metadata.uid in await paused(c)
        assert theirs.metadata.uid not in uids(await members(c))


async def test_what_was_handed_out_while_its_node_was_restarted_goes_on():
    async with cluster() as c:
        await with_paused(c)
        before = await spares(c)
        c.kill_agent("node0")
        await c.scale("test", 3)
        await asyncio.sleep(5)
        given = [vmi for vmi in await members(c) if vmi.metadata.uid in uids(before)]
        assert len(given) == 2
        assert all(map(is_paused_spare, given))
        c.start_node("node0")
        await until_members(c, 3)
        assert not await paused(c) & uids(before)
        await until_paused(c, 2)


async def test_the_next_manager_keeps_spares_paused():
    async with cluster() as c:
        await with_paused(c)
        before = uids(await spares(c))
        await c.crash_loops()
        c.kill_agent("node0")
        c.start_loops()
        c.start_node("node0")
        await until_paused(c, 2)
        assert uids(await spares(c)) == before


async def test_a_paused_spare_that_moves_goes_on_where_it_is_handed_out():
    async with cluster(nodes=2) as c:
        await c.client.create(ReplicaSet, movable_set(replicas=0))
        await c.client.create(WarmPool, warm_pool(1, state="Paused"))
        await until_paused(c, 1)
        (before,) = await spares(c)
        await migrate(c, before)
        await in_phase(c, "Succeeded")
        await until_paused(c, 1)
        (moved,) = await spares(c)
        assert moved.metadata.uid == before.metadata.uid
        assert moved.status.node_name != before.status.node_name
        await c.scale("test", 1)
        await until_members(c, 1, AT_ONCE)
        (given,) = await members(c)
        assert given.metadata.uid == before.metadata.uid
        assert await c.guest(given).runs()
