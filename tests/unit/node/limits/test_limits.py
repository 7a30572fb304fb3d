"""Bounding machines: which of the ways' work is done where."""

import asyncio
import os
import threading

import pytest

from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits
from corral.node.limits.probe import Limiters

BOUNDS = Bounds(cpu_nanos=10**8, memory_bytes=1 << 40)


class Way:
    """Records the calls and their threads."""

    name = "of a test"

    def __init__(self, *, blocks):
        self.blocks = blocks
        self.calls = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Event()

    def apply(self, *_, **__):
        self.begun.set()
        self.go_on.wait(60)
        self.calls.append(("hold", threading.current_thread()))

    def remove(self, _uid):
        self.calls.append(("clear", threading.current_thread()))


def limits(tmp_path, way):
    return Limits(tmp_path, Limiters(way, way, ""))


async def hold(limits):
    await limits.apply("u", os.getpid(), BOUNDS, fresh=True, on_exceeded=lambda: None)


@pytest.mark.parametrize("waits", [True, False])
async def test_blocking_cgroup_writes_do_not_block_the_loop(tmp_path, waits):
    way = Way(blocks=waits)
    bound = limits(tmp_path, way)
    await hold(bound)
    await bound.remove("u", [])
    assert [what for what, _ in way.calls] == ["hold", "hold", "clear", "clear"]
    assert {thread is threading.current_thread() for _, thread in way.calls} == {not waits}


async def test_a_cancelled_call_waits_for_the_kernel(tmp_path):
    """Else a process could be moved after its group was removed."""
    way = Way(blocks=True)
    way.go_on.clear()
    task = asyncio.create_task(hold(limits(tmp_path, way)))
    await asyncio.to_thread(way.begun.wait, 60)
    task.cancel()
    for _ in range(10):  # who does not wait has ended by then
        await asyncio.sleep(0)
    assert not task.done()
    way.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(way.calls) == 1
