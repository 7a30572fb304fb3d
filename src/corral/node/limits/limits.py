"""Resource limits of all machines of this host, by the methods that work here."""

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
from corral.node.limits.methods import CpuLimiter, MemoryLimiter, OnExceeded
from corral.node.limits.probe import Limiters, find_limiters, group_prefix

P = ParamSpec("P")
ExistingUids = Callable[[], Collection[str]]
"""Returns the uids of existing machines."""


@dataclass(eq=False)
class MemoryLimitTooLow(Exception):
    """A machine uses more memory than its limit before its guest has executed anything."""

    limit: int
    used: int


class Limits:
    """Limits the machines of a host; ``prepare`` finds the methods that work.

    ``directory`` is the data directory of the machines; ``existing`` returns the uids of existing
    machines, in any state.
    """

    def __init__(
        self,
        directory: Path,
        limiters: Limiters | None = None,
        *,
        existing: ExistingUids = frozenset,
    ) -> None:
        self._name = group_prefix(directory)
        self._existing = existing
        self._limiters = limiters
        self._prepared = asyncio.Lock()

    async def prepare(self) -> None:
        """Find the methods that work here, once."""
        async with self._prepared:
            if self._limiters is None:
                self._limiters = await asyncio.to_thread(self._find)

    def _find(self) -> Limiters:
        return find_limiters(self._name, existing=self._existing())

    def facts(self) -> Mapping[str, Any]:
        """Return the methods and the reason for them; empty before ``prepare``."""
        if self._limiters is None:
            return {}
        return {"limits": self._limiters.description, "reason": self._limiters.reason}

    async def cgroup_paths(self, uid: str, pid: int, bounds: Bounds) -> Sequence[str]:
        """Return the paths of the cgroups into which ``apply`` puts a process."""
        await self.prepare()
        assert self._limiters is not None
        memory = self._limiters.memory.cgroup_path(uid, pid) if bounds.memory_bytes else ""
        cpu = self._limiters.cpu.cgroup_path(uid, pid) if bounds.cpu_nanos else ""
        return [cgroup_path for cgroup_path in (memory, cpu) if cgroup_path]

    async def apply(
        self, uid: str, pid: int, bounds: Bounds, *, fresh: bool, on_exceeded: OnExceeded
    ) -> None:
        """Apply the limits to a machine's process.

        Raises OSError, and TooLittle for a ``fresh`` one.

        ``on_exceeded`` is called if it exceeds the memory limit, unless the kernel kills it.
        """
        await self.prepare()
        assert self._limiters is not None
        if bounds.memory_bytes:
            used = own_bytes(pid)
            if fresh and used >= bounds.memory_bytes:
                raise MemoryLimitTooLow(bounds.memory_bytes, used)
            memory = self._limiters.memory
            await _call(
                memory,
                memory.apply,
                uid,
                pid,
                bounds.memory_bytes,
                used=used,
                on_exceeded=on_exceeded,
            )
        if bounds.cpu_nanos:
            await _call(self._limiters.cpu, self._limiters.cpu.apply, uid, pid, bounds.cpu_nanos)

    def lower_priority(self, uid: str, low: bool) -> None:  # noqa: FBT001 - a switch
        """Lower the CPU priority of a machine, where the nice value does not do it."""
        if self._limiters is not None:
            self._limiters.cpu.lower_priority(uid, low)

    async def wake(self, directory: Path) -> None:
        """Continue the machine of a directory, which an earlier manager may have stopped."""
        await asyncio.to_thread(wake, directory)

    def release(self, uid: str) -> None:
        """Stop watching a machine, which runs on."""
        if self._limiters is not None:
            self._limiters.cpu.release(uid)
            self._limiters.memory.release(uid)

    async def lift(self, uid: str, groups: Sequence[str]) -> None:
        """Lift the CPU limit of a machine that is about to end."""
        if self._limiters is not None:
            self._limiters.cpu.release(uid)
        await asyncio.to_thread(cgroup_leftovers.lift_limits, groups)

    async def was_oom_killed(self, groups: Sequence[str]) -> bool:
        """Report whether a machine has ended at the memory limit of its groups."""
        return await asyncio.to_thread(cgroup_leftovers.was_oom_killed, groups)

    async def remove(self, uid: str, groups: Sequence[str]) -> None:
        """Remove the groups of a machine whose end is recorded."""
        if self._limiters is not None:
            for limiter in (self._limiters.cpu, self._limiters.memory):
                await _call(limiter, limiter.remove, uid)
        await asyncio.to_thread(cgroup_leftovers.remove, groups)


async def _call(
    limiter: CpuLimiter | MemoryLimiter,
    function: Callable[P, None],
    *args: P.args,
    **keywords: P.kwargs,
) -> None:
    """Call a method of a limiter, in a thread if it blocks; a cancelled caller waits for it."""
    if limiter.blocks:
        await finished(asyncio.to_thread(function, *args, **keywords))
    else:
        function(*args, **keywords)
