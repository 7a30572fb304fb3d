"""Keeps the limits of all machines of this host, in the ways that work here."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

from corral.aio import finished
from corral.node.limits import cgroup_leftovers
from corral.node.limits.bounds import Bounds
from corral.node.limits.cpu_duty_cycle import wake
from corral.node.limits.memory_watch import own_bytes
from corral.node.limits.methods import CpuWay, MemoryWay, Over
from corral.node.limits.probe import Ways, find_ways, prefix

P = ParamSpec("P")
Known = Callable[[], Collection[str]]
"""Tells the uids of machines."""


@dataclass(eq=False)
class TooLittle(Exception):
    """A machine holds more memory than it may before its guest has executed anything."""

    limit: int
    held: int


class Limits:
    """What bounds machines; which ways work is found out by ``prepare``.

    ``directory`` is the data directory that the machines belong to; ``known`` tells the uids of
    those that are there, whatever has become of them.
    """

    def __init__(
        self, directory: Path, ways: Ways | None = None, *, known: Known = frozenset
    ) -> None:
        self._name = prefix(directory)
        self._known = known
        self._ways = ways
        self._prepared = asyncio.Lock()

    async def prepare(self) -> None:
        """Find out what works here, once."""
        async with self._prepared:
            if self._ways is None:
                self._ways = await asyncio.to_thread(self._find)

    def _find(self) -> Ways:
        return find_ways(self._name, known=self._known())

    def facts(self) -> Mapping[str, Any]:
        """What the node tells of it; nothing before it is prepared."""
        if self._ways is None:
            return {}
        return {"limits": self._ways.told, "reason": self._ways.reason}

    async def places(self, uid: str, pid: int, bounds: Bounds) -> Sequence[str]:
        """The paths of the control groups that ``hold`` puts a process into."""
        await self.prepare()
        assert self._ways is not None
        memory = self._ways.memory.place(uid, pid) if bounds.memory_bytes else ""
        cpu = self._ways.cpu.place(uid, pid) if bounds.cpu_nanos else ""
        return [place for place in (memory, cpu) if place]

    async def hold(self, uid: str, pid: int, bounds: Bounds, *, fresh: bool, over: Over) -> None:
        """Bound a machine's process.  Raises OSError, and TooLittle for a ``fresh`` one.

        ``over`` is called if it holds too much memory, and nobody else ends it for that.
        """
        await self.prepare()
        assert self._ways is not None
        if bounds.memory_bytes:
            held = own_bytes(pid)
            if fresh and held >= bounds.memory_bytes:
                raise TooLittle(bounds.memory_bytes, held)
            memory = self._ways.memory
            await _at(memory, memory.hold, uid, pid, bounds.memory_bytes, held=held, over=over)
        if bounds.cpu_nanos:
            await _at(self._ways.cpu, self._ways.cpu.hold, uid, pid, bounds.cpu_nanos)

    def step_back(self, uid: str, back: bool) -> None:  # noqa: FBT001 - a switch
        """Let a machine leave the processors to others, where its niceness has no say."""
        if self._ways is not None:
            self._ways.cpu.step_back(uid, back)

    async def wake(self, directory: Path) -> None:
        """Let the machine of a directory go on, which an earlier manager may have stopped."""
        await asyncio.to_thread(wake, directory)

    def release(self, uid: str) -> None:
        """Let go of a machine, which runs on."""
        if self._ways is not None:
            self._ways.cpu.release(uid)
            self._ways.memory.release(uid)

    async def lift(self, uid: str, groups: Sequence[str]) -> None:
        """A machine is about to be ended: its process may have all the processors for that."""
        if self._ways is not None:
            self._ways.cpu.release(uid)
        await asyncio.to_thread(cgroup_leftovers.lift, groups)

    async def ran_out(self, groups: Sequence[str]) -> bool:
        """Whether a machine has ended since it wanted more memory than its groups allow."""
        return await asyncio.to_thread(cgroup_leftovers.ran_out, groups)

    async def clear(self, uid: str, groups: Sequence[str]) -> None:
        """A machine has ended, and why is on record: nothing of it stays."""
        if self._ways is not None:
            for way in (self._ways.cpu, self._ways.memory):
                await _at(way, way.clear, uid)
        await asyncio.to_thread(cgroup_leftovers.remove, groups)


async def _at(
    way: CpuWay | MemoryWay, act: Callable[P, None], *args: P.args, **named: P.kwargs
) -> None:
    """Have a way act where it may wait.  Who is cancelled waits for it, lest it come too late."""
    if way.waits:
        await finished(asyncio.to_thread(act, *args, **named))
    else:
        act(*args, **named)
