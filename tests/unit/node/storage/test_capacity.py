"""The space that a storage has left, as its Nodes say it."""

import asyncio

import pytest

from corral.aio import Background
from corral.api.kinds.storage.common import STORAGE_CAPACITY
from corral.node.storage.capacity import INTERVAL_SECONDS, STEP, FreeCapacity

pytestmark = pytest.mark.looptime


class Disk:
    left = 10 * STEP + 1
    fails = False

    def unallocated(self):
        if self.fails:
            raise OSError("no such directory")
        return self.left


async def test_nodes_are_written_when_the_space_has_changed():
    disk, written = Disk(), []
    capacity = FreeCapacity(disk, lambda: written.append(capacity.annotations()))
    assert capacity.annotations() == {}
    async with Background() as tasks:
        tasks.start(capacity.run(), name="capacity")
        await asyncio.sleep(0.9)
        assert written == [{STORAGE_CAPACITY: str(10 * STEP)}]
        disk.left += STEP // 2
        capacity.changed()
        await asyncio.sleep(2)
        assert len(written) == 1  # too little to write
        disk.left = -5
        capacity.changed()
        await asyncio.sleep(2)
        assert written[1:] == [{STORAGE_CAPACITY: "0"}]


async def test_the_space_is_measured_without_changes_too_and_after_failures():
    disk, written = Disk(), []
    disk.fails = True
    capacity = FreeCapacity(disk, lambda: written.append(1))
    async with Background() as tasks:
        tasks.start(capacity.run(), name="capacity")
        await asyncio.sleep(1)
        assert not written
        disk.fails = False
        await asyncio.sleep(INTERVAL_SECONDS + 2)
        assert written == [1]


async def test_small_changes_around_a_step_are_not_written():
    disk, written = Disk(), []
    capacity = FreeCapacity(disk, lambda: written.append(capacity.annotations()))
    async with Background() as tasks:
        tasks.start(capacity.run(), name="capacity")
        for change in (0, -2, 2, -2, 2, -2):
            disk.left += change
            capacity.changed()
            await asyncio.sleep(2)
    assert written == [{STORAGE_CAPACITY: str(step * STEP)} for step in (10, 9)]
    # What is written is there, whatever others write.
    assert disk.left >= 9 * STEP
