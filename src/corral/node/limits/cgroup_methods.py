"""The kernel's ways to bound what a process takes: control groups of both versions."""

import errno
from contextlib import suppress

from corral.node.limits.cgroup_paths import Site
from corral.node.limits.methods import Over

SHORTEST_QUOTA_MICROS = 1000
"""The kernel's least time for a period."""
PERIOD_MICROS = 100_000
"""In which a group's time is counted (Kubernetes): who has used it up waits for the next."""
_LONGEST_PERIOD_MICROS = 1_000_000
_STEPPED_BACK = 15
"""Niceness of a machine that leaves the processors to others."""
_STEPPED_BACK_SHARES = "36"
_FULL_SHARES = "1024"


def quota(nanos: int) -> tuple[int, int]:
    """The time of a group and the period that it is for, in microseconds.

    So little that the kernel refuses it is given for a longer period.
    """
    period = PERIOD_MICROS
    while nanos * period < SHORTEST_QUOTA_MICROS * 10**9 and period < _LONGEST_PERIOD_MICROS:
        period *= 2
    period = min(period, _LONGEST_PERIOD_MICROS)
    return max(nanos * period // 10**9, SHORTEST_QUOTA_MICROS), period


class _Groups:
    """A group for each machine, which the kernel keeps whether a manager runs or not."""

    waits = True

    def __init__(self, site: Site) -> None:
        self._site = site

    def place(self, uid: str, pid: int) -> str:
        self._site.recall(uid, pid)
        return str(self._site.group(uid).path)

    def release(self, uid: str) -> None:
        """It stays as it is."""

    def clear(self, uid: str) -> None:
        self._site.clear(uid)


class CpuGroups1(_Groups):
    """Processor time by cgroup v1."""

    name = "cgroup v1"

    def hold(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        if self._site.recall(uid, pid):
            return
        group = self._site.make(uid)
        time, period = quota(nanos)
        group.write("cpu.cfs_period_us", str(period))
        try:
            group.write("cpu.cfs_quota_us", str(time))
        except OSError as error:
            if error.errno != errno.EINVAL:  # more than the group around it has: that one bounds it
                raise
        self._site.put(uid, pid)

    def step_back(self, uid: str, back: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            self._site.group(uid).write(
                "cpu.shares", _STEPPED_BACK_SHARES if back else _FULL_SHARES
            )


class CpuGroups2(_Groups):
    """Processor time by cgroup v2."""

    name = "cgroup v2"

    def hold(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        inside = self._site.recall(uid, pid)
        group = self._site.group(uid) if inside else self._site.make(uid)
        time, period = quota(nanos)
        group.write("cpu.max", f"{time} {period}")
        if not inside:
            self._site.put(uid, pid)

    def step_back(self, uid: str, back: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            self._site.group(uid).write("cpu.weight.nice", str(_STEPPED_BACK if back else 0))


class MemoryGroups1(_Groups):
    """Memory by cgroup v1; swap counts too, where the kernel counts it."""

    name = "cgroup v1"

    def hold(self, uid: str, pid: int, size: int, *, held: int, over: Over) -> None:  # noqa: ARG002
        """Raises OSError."""
        if self._site.recall(uid, pid):
            return
        group = self._site.make(uid)
        allowed = str(max(size - held, 0))
        group.write("memory.limit_in_bytes", allowed)
        with suppress(FileNotFoundError):
            group.write("memory.memsw.limit_in_bytes", allowed)
        self._site.put(uid, pid)


class MemoryGroups2(_Groups):
    """Memory by cgroup v2, of which nothing is swapped (Kubernetes)."""

    name = "cgroup v2"

    def hold(self, uid: str, pid: int, size: int, *, held: int, over: Over) -> None:  # noqa: ARG002
        """Raises OSError."""
        # In version 2 the group is that of the processor time, too: being inside proves nothing.
        inside = self._site.recall(uid, pid)
        group = self._site.group(uid) if inside else self._site.make(uid)
        if group.read("memory.max").strip() == "max":
            group.write("memory.oom.group", "1")
            with suppress(FileNotFoundError):
                group.write("memory.swap.max", "0")
            # The last one: where it is set, the others are.
            group.write("memory.max", str(max(size - held, 0)))
        if not inside:
            self._site.put(uid, pid)
