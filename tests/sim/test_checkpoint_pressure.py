"""Nodes that run short of disk space: checkpoints that nobody needs go before machines do."""

import asyncio

import pytest
from tests.sim.cluster import cluster
from tests.sim.test_pressure import ENOUGH, LOOK, MEBIBYTE, SHORT, condition, events
from tests.sim.test_warm_pool_checkpoints import (
    checkpoints,
    only_checkpoint,
    prepare,
    until_condition,
)
from tests.sim.warm_pools import boot, until_members

from corral.api.kinds.core.node_pressure import DISK_PRESSURE
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.controllers.warmpool.checkpoint_plan import RETRY_SECONDS
from corral.node.pressure.eviction_manager import TRANSITION_SECONDS

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]


class Disk:
    """An observation of a disk that has too little space as long as a file is there."""

    capacity = ENOUGH.capacity

    def __init__(self, file):
        self._file = file

    @property
    def available(self):
        return (SHORT if self._file.exists() else ENOUGH).available


def files_of(c, checkpoint):
    return c.node_directory(checkpoint.status.node_name) / "checkpoints" / checkpoint.metadata.uid


async def until_gone(c, checkpoint):
    async def is_gone():
        return not files_of(c, checkpoint).exists()

    await c.until(is_gone, 3 * LOOK)


async def with_unused(c):
    """Return the checkpoint of a warm pool without spares, which nobody has used yet."""
    await prepare(c, 0)
    made = await only_checkpoint(c)

    async def are_gone():
        return not await c.machines()

    await c.until(are_gone)
    return made


async def test_an_unused_checkpoint_goes_before_a_machine_and_is_made_again_after_the_pressure():
    async with cluster() as c:
        before = await with_unused(c)
        await c.scale("test", 0)
        alone = {"domain": {"devices": {}, "resources": {"requests": {"memory": "64M"}}}}
        metadata = {"name": "alone", "namespace": "default"}
        await c.client.create(Machine, {"metadata": metadata, "spec": alone})

        async def is_running():
            return [each.status.phase for each in await c.machines()] == ["Running"]

        await c.until(is_running)
        (machine,) = await c.machines()
        (c.directory(machine) / "root.qcow2").write_bytes(bytes(3 * MEBIBYTE))
        files = files_of(c, before)

        c.left["node0"]["nodefs.available"] = Disk(files)
        await until_gone(c, before)
        found = await until_condition(c, "CheckpointReady", "Evicted")
        assert found.status == "False"
        assert before.metadata.name in found.message
        assert (await condition(c, DISK_PRESSURE)).status == "True"
        reported = await events(c, "Evicted")
        assert {one.involvedObject.kind for one in reported} == {Checkpoint.kind, WarmPool.kind}
        await asyncio.sleep(TRANSITION_SECONDS - 2 * LOOK)
        assert await is_running(), "the machine stays, and no source is made under pressure"
        await asyncio.sleep(2 * LOOK + RETRY_SECONDS)
        after = await only_checkpoint(c)
        assert after.metadata.name != before.metadata.name


async def test_checkpoints_of_users_and_those_with_forks_stay_whatever_the_pressure():
    async with cluster() as c:
        used = await with_unused(c)
        await c.scale("test", 1)
        await until_members(c, 1)
        (member,) = await c.machines()
        source = {"kind": member.kind, "name": member.metadata.name}
        document = {"metadata": {"name": "own", "namespace": "default"}, "spec": {"source": source}}
        await c.client.create(Checkpoint, document)

        async def are_complete():
            return [each.has("Ready") for each in await checkpoints(c)] == [True, True]

        await c.until(are_complete, 60)
        c.left["node0"]["nodefs.available"] = SHORT
        await asyncio.sleep(5 * LOOK)
        assert (await condition(c, DISK_PRESSURE)).status == "True"
        assert [each.has("Ready") for each in await checkpoints(c)] == [True, True]
        await c.scale("test", 0)
        await until_gone(c, used)
        (own,) = [each for each in await checkpoints(c) if each.metadata.name == "own"]
        assert own.has("Ready")
        assert files_of(c, own).exists()


async def test_on_several_nodes_one_with_room_gets_the_checkpoint_of_one_without():
    async with cluster(nodes=2) as c:
        before = await with_unused(c)
        boot(c, boot_seconds=1)
        node = before.status.node_name
        for each in list(c.left):
            c.left[each]["nodefs.available"] = SHORT if each == node else ENOUGH
        await until_gone(c, before)

        async def is_elsewhere():
            made = [each for each in await checkpoints(c) if each.has("Ready")]
            return [each.status.node_name for each in made] not in ([], [node])

        await c.until(is_elsewhere, RETRY_SECONDS + 60)
