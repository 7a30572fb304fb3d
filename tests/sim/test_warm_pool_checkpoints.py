"""Warm pools whose spares start from a checkpoint."""

import asyncio

import pytest
from tests.sim.cluster import Faults, cluster, replica_set
from tests.sim.drains import cordon
from tests.sim.warm_pools import (
    POOL,
    boot,
    members,
    pool_of,
    spares,
    until_members,
    until_spares,
    warm_pool,
)

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.warm_pool import (
    CHECKPOINT_SOURCE_LABEL,
    VirtualMachineWarmPool as WarmPool,
)
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.fork_state import has_own_identity
from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.warmpool.checkpoint_plan import RETRY_SECONDS
from corral.reconcile.objects import controller_uid

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

SET = Key("default", "test")
SECONDS = {"terminationGracePeriodSeconds": 1}


def forkable(replicas=0, binding="masquerade"):
    """A set whose machines may be forked."""
    document = replica_set("test", replicas)
    spec = document["spec"]["template"]["spec"]
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", binding: {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]
    return document


async def prepare(c, replicas=3, members=0, **spec):
    await c.client.create(ReplicaSet, forkable(members))
    await c.client.create(WarmPool, warm_pool(replicas, startFrom="Checkpoint", **spec))


async def with_forks(c, replicas=3, members=0, **spec):
    await prepare(c, replicas, members, **spec)
    await until_spares(c, replicas)
    return await only_checkpoint(c)


async def checkpoints(c):
    found = await c.client.list(Checkpoint, "default")
    return [each for each in found.items if not each.metadata.deletion_timestamp]


async def only_checkpoint(c):
    """Wait until a pool has one checkpoint, which its spares start from."""

    async def is_only():
        names = [each.metadata.name for each in await checkpoints(c)]
        return names == [(await pool_of(c)).status.checkpoint]

    await c.until(is_only, 600)
    (made,) = await checkpoints(c)
    return made


async def until_condition(c, kind, reason, seconds=600):
    async def is_so():
        conditions = (await pool_of(c)).status.conditions
        return reason in {each.reason for each in conditions if each.type == kind}

    await c.until(is_so, seconds)
    (found,) = [each for each in (await pool_of(c)).status.conditions if each.type == kind]
    return found


async def until_another(c, before, seconds=600):
    async def is_another():
        return (await pool_of(c)).status.checkpoint not in {"", before.metadata.name}

    await c.until(is_another, seconds)
    return await only_checkpoint(c)


async def test_spares_are_copies_of_the_first_one():
    async with cluster() as c:
        boot(c, boot_seconds=5)
        made = await with_forks(c)
        found = await spares(c)
        assert len({c.guest(each).memory for each in found}) == 1
        forks = [each for each in found if starts_from(each)]
        assert {starts_from(each) for each in forks} == {made.metadata.name}
        assert len(forks) == 2
        assert all(map(has_own_identity, found))
        assert not any(CHECKPOINT_SOURCE_LABEL in each.metadata.labels for each in found)
        assert controller_uid(made) == (await pool_of(c)).metadata.uid
        assert (await until_condition(c, "CheckpointReady", "Complete")).status == "True"
        assert "CheckpointComplete" in {event.reason for event in await c.events("spares")}


async def test_a_set_grows_by_copies_beyond_its_spares():
    async with cluster() as c:
        made = await with_forks(c, 1)
        await c.scale("test", 4)
        await until_members(c, 4)
        assert [starts_from(each) for each in await members(c)].count(made.metadata.name) == 3
        await until_spares(c, 1)


async def test_a_pool_without_spares_keeps_a_checkpoint_alone():
    async with cluster() as c:
        made = await with_forks(c, 0)

        async def are_gone():
            return not await c.machines()

        await c.until(are_gone)
        boot(c, boot_seconds=1000)
        await c.scale("test", 3)
        await until_members(c, 3, 10)
        assert {starts_from(each) for each in await members(c)} == {made.metadata.name}


async def test_the_source_is_handed_out_to_nobody_until_its_checkpoint_is_complete():
    async with cluster() as c:
        boot(c, boot_seconds=20)
        await prepare(c, members=1)
        await until_condition(c, "CheckpointReady", "SourceStarting")
        (source,) = await spares(c)
        await c.scale("test", 2)
        await asyncio.sleep(10)
        assert source.metadata.name not in {each.metadata.name for each in await members(c)}
        assert (await pool_of(c)).status.ready_replicas == 0
        await until_spares(c, 3)


async def test_a_guest_that_does_not_come_up_is_waited_for_alone():
    async with cluster() as c:
        boot(c, boot_seconds=1e6)
        await prepare(c)
        found = await until_condition(c, "Ready", "CheckpointPending")
        (source,) = await spares(c)
        assert source.metadata.name in found.message
        await asyncio.sleep(1000)
        assert len(await c.machines()) == 1


async def test_a_changed_template_gets_a_checkpoint_and_the_last_one_stays_until_then():
    async with cluster() as c:
        before = await with_forks(c)
        boot(c, boot_seconds=30)
        await c.client.patch(ReplicaSet, SET, {"spec": {"template": {"spec": SECONDS}}})
        await until_condition(c, "CheckpointReady", "SourceStarting")
        assert [each.metadata.uid for each in await checkpoints(c)] == [before.metadata.uid]
        await until_another(c, before)
        await until_spares(c, 3)
        for each in await spares(c):
            assert each.spec.termination_grace_period_seconds == 1
            assert starts_from(each) != before.metadata.name


async def test_a_deleted_checkpoint_is_made_anew():
    async with cluster() as c:
        before = await with_forks(c)
        await c.client.delete(Checkpoint, before.key)
        await until_another(c, before)
        await until_spares(c, 3)


async def test_spares_boot_while_their_checkpoint_is_damaged_and_it_is_made_anew():
    async with cluster() as c:
        before = await with_forks(c)
        files = c.node_directory(before.status.node_name) / "checkpoints" / before.metadata.uid
        (files / "devices").write_bytes(b"x")
        (spare, *_) = [each for each in await spares(c) if starts_from(each)]
        await c.client.delete(Machine, spare.key)
        found = await until_condition(c, "CheckpointReady", "Damaged")
        assert "checksum" in found.message
        await until_spares(c, 3)
        assert "Damaged" in {event.reason for event in await c.events("spares")}
        await until_another(c, before, RETRY_SECONDS + 60)
        await until_spares(c, 3)


async def test_a_checkpoint_from_which_a_member_could_not_start_is_made_anew():
    async with cluster() as c:
        before = await with_forks(c, 0)
        files = c.node_directory(before.status.node_name) / "checkpoints" / before.metadata.uid
        (files / "devices").write_bytes(b"x")
        await c.scale("test", 1)
        await until_condition(c, "CheckpointReady", "Damaged")
        await until_members(c, 1)
        await until_another(c, before, RETRY_SECONDS + 60)


async def test_machines_that_cannot_be_copied_boot():
    async with cluster() as c:
        await c.client.create(ReplicaSet, forkable(binding="bridge"))
        await c.client.create(WarmPool, warm_pool(3, startFrom="Checkpoint"))
        found = await until_condition(c, "CheckpointReady", "NotSupported")
        assert "spec.domain.devices.interfaces[0]" in found.message
        await until_spares(c, 3)
        assert not any(map(starts_from, await spares(c)))
        assert len(await checkpoints(c)) == 1


async def test_a_node_that_takes_no_machines_has_its_checkpoint_made_on_another():
    async with cluster(nodes=2) as c:
        before = await with_forks(c)
        assert {each.status.node_name for each in await spares(c) if starts_from(each)} == {
            before.status.node_name
        }
        await cordon(c, before.status.node_name)
        after = await until_another(c, before)
        assert after.status.node_name != before.status.node_name
        await c.client.delete(Machine, next(each.key for each in await spares(c)))
        await until_spares(c, 3)


async def test_a_checkpoint_ages_as_spares_do():
    async with cluster() as c:
        before = await with_forks(c, maxAge="600s")
        after = await until_another(c, before, 700)
        assert asyncio.get_running_loop().time() >= 600
        await until_spares(c, 3)
        assert after.metadata.name != before.metadata.name


async def test_a_pool_whose_spares_are_to_boot_drops_its_checkpoint():
    async with cluster() as c:
        await with_forks(c)
        await c.client.patch(WarmPool, POOL, {"spec": {"startFrom": "Boot"}})

        async def is_dropped():
            status = (await pool_of(c)).status
            types = {each.type for each in status.conditions}
            return not await checkpoints(c) and not status.checkpoint and types == {"Ready"}

        await c.until(is_dropped)


async def test_a_checkpoint_goes_with_its_pool():
    async with cluster() as c:
        await with_forks(c)
        await c.client.delete(WarmPool, POOL)

        async def are_gone():
            return not await checkpoints(c) and not await c.machines()

        await c.until(are_gone)


@pytest.mark.parametrize("seed", range(4))
async def test_one_checkpoint_is_made_however_often_manager_and_source_are_killed(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.05, until=40)
    async with cluster(nodes=2, faults=faults) as c:
        boot(c, boot_seconds=3, start_failures=0.1, seed=seed)
        await prepare(c, members=1)
        for step in range(8):
            await asyncio.sleep(1 + (seed * 7 + step * 5) % 6)
            if step % 3 == 2:
                for vmi in (await spares(c))[:1]:
                    await c.client.delete(Machine, vmi.key)
            elif step % 3:
                await c.client.patch(
                    ReplicaSet,
                    SET,
                    {
                        "spec": {
                            "template": {"spec": {"terminationGracePeriodSeconds": step % 2}},
                            "replicas": step,
                        }
                    },
                )
            await c.crash_loops()
            c.start_loops()
        boot(c)
        await asyncio.sleep(40)
        await until_spares(c, 3, 900)
        made = await only_checkpoint(c)
        await until_members(c, (await c.replica_set("test")).spec.replicas)
        assert made.has("Ready")

        async def have_no_more_files():
            found = [
                each.name
                for node in ("node0", "node1")
                for each in (c.node_directory(node) / "checkpoints").glob("*")
            ]
            return found == [made.metadata.uid]

        await c.until(have_no_more_files, 60)
