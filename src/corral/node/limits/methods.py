"""Interfaces of the methods that limit processes, by cgroups or without.

A limiter limits CPU time or memory.  It is called when a machine starts, when its manager stops
watching it, and when it has ended; all calls may be repeated.  Cgroups take time to move a process
(``blocks``): not in the event loop, to which the other limiters belong.
"""

from collections.abc import Callable
from typing import Protocol

OnExceeded = Callable[[], None]
"""Called when a machine exceeds its memory limit."""


class CpuLimiter(Protocol):
    """Limits CPU time."""

    name: str
    blocks: bool

    def apply(self, uid: str, pid: int, nanos: int) -> None:
        """Limit a process to so many nanoseconds per second.  Raises OSError."""

    def cgroup_path(self, uid: str, pid: int) -> str:
        """Return the path of a machine's cgroup; empty if the method uses none."""

    def lower_priority(self, uid: str, low: bool) -> None:  # noqa: FBT001 - a switch
        """Lower the CPU priority, where the nice value does not do it."""

    def release(self, uid: str) -> None:
        """Stop watching a machine, which runs on."""

    def remove(self, uid: str) -> None:
        """Remove what belongs to a machine that has ended."""


class MemoryLimiter(Protocol):
    """Limits memory."""

    name: str
    blocks: bool

    def apply(self, uid: str, pid: int, size: int, *, used: int, on_exceeded: OnExceeded) -> None:
        """Kill a process that exceeds the limit.  Raises OSError.

        ``used``: memory that it uses already and that is charged to another group; ``on_exceeded``
        is called if it is not the kernel that kills it.
        """

    def cgroup_path(self, uid: str, pid: int) -> str: ...

    def release(self, uid: str) -> None: ...

    def remove(self, uid: str) -> None: ...
