"""Limits by cgroups of both versions."""

import errno
from contextlib import nullcontext, suppress
from typing import Final

from corral.node.limits.cgroup import Group
from corral.node.limits.cgroup_paths import MachineGroups
from corral.node.limits.methods import OnExceeded

MIN_QUOTA_MICROS = 1000
"""The kernel's minimum of a quota."""
PERIOD_MICROS = 100_000
"""The accounting period of a group (Kubernetes' default)."""
_MAX_PERIOD_MICROS = 1_000_000
_LOW_PRIORITY_NICE = 15
"""Nice value of a machine with lowered priority."""
_LOW_PRIORITY_SHARES = "36"
_DEFAULT_SHARES = "1024"
_CHARGED: Final = frozenset({"anon", "rss", "shmem", "swap"})
"""Counters of ``memory.stat`` for what ``own_bytes`` counts of a process; each version has some."""


def quota(nanos: int) -> tuple[int, int]:
    """Return the quota and the period of a group, in microseconds.

    A quota below the kernel's minimum gets a longer period.
    """
    period = PERIOD_MICROS
    while nanos * period < MIN_QUOTA_MICROS * 10**9 and period < _MAX_PERIOD_MICROS:
        period *= 2
    period = min(period, _MAX_PERIOD_MICROS)
    return max(nanos * period // 10**9, MIN_QUOTA_MICROS), period


def _charged_bytes(group: Group) -> int:
    """Return the memory of a group's process that is charged to the group.

    The rest was there before the process was moved, and is charged to another group.
    """
    counters = (line.split() for line in group.read("memory.stat").splitlines())
    return sum(int(value) for name, value in counters if name in _CHARGED)


def _limit_memory_and_swap(group: Group, limit: int, *, swap_first: bool = False) -> None:
    """Set both limits of version 1: memory may not have more than memory and swap together."""
    settings = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    for setting in reversed(settings) if swap_first else settings:
        # Without accounting of swap there is no second setting.
        with suppress(FileNotFoundError) if "memsw" in setting else nullcontext():
            group.write(setting, str(limit))


class _CgroupLimiter:
    """A group for each machine; the kernel enforces its limits without a manager."""

    blocks = True

    def __init__(self, groups: MachineGroups) -> None:
        self._groups = groups

    def cgroup_path(self, uid: str, pid: int) -> str:
        self._groups.contains(uid, pid)
        return str(self._groups.group(uid).path)

    def release(self, uid: str) -> None:
        """Keep the group: its limits stay."""

    def remove(self, uid: str) -> None:
        self._groups.remove(uid)


class CpuCgroup1(_CgroupLimiter):
    """CPU limits by cgroup v1."""

    name = "cgroup v1"

    def apply(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        is_inside = self._groups.contains(uid, pid)
        group = self._groups.group(uid) if is_inside else self._groups.recreate(uid)
        time, period = quota(nanos)
        group.write("cpu.cfs_period_us", str(period))
        try:
            group.write("cpu.cfs_quota_us", str(time))
        except OSError as error:
            if error.errno != errno.EINVAL:  # above the limit of the parent group, which applies
                raise
        if not is_inside:
            self._groups.add(uid, pid)

    def lower_priority(self, uid: str, low: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            self._groups.group(uid).write(
                "cpu.shares", _LOW_PRIORITY_SHARES if low else _DEFAULT_SHARES
            )


class CpuCgroup2(_CgroupLimiter):
    """CPU limits by cgroup v2."""

    name = "cgroup v2"

    def apply(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        is_inside = self._groups.contains(uid, pid)
        group = self._groups.group(uid) if is_inside else self._groups.recreate(uid)
        time, period = quota(nanos)
        group.write("cpu.max", f"{time} {period}")
        if not is_inside:
            self._groups.add(uid, pid)

    def lower_priority(self, uid: str, low: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            self._groups.group(uid).write("cpu.weight.nice", str(_LOW_PRIORITY_NICE if low else 0))


class MemoryCgroup1(_CgroupLimiter):
    """Memory limits by cgroup v1, including swap where the kernel accounts for it."""

    name = "cgroup v1"

    def apply(self, uid: str, pid: int, size: int, *, used: int, on_exceeded: OnExceeded) -> None:  # noqa: ARG002
        """Raises OSError."""
        if not self._groups.contains(uid, pid):
            group = self._groups.recreate(uid)
            _limit_memory_and_swap(group, max(size - used, 0))
            self._groups.add(uid, pid)
            return
        group = self._groups.group(uid)
        limit = max(size - used + _charged_bytes(group), 0)
        is_raised = limit > int(group.read("memory.limit_in_bytes"))
        _limit_memory_and_swap(group, limit, swap_first=is_raised)


class MemoryCgroup2(_CgroupLimiter):
    """Memory limits by cgroup v2, without swap (Kubernetes)."""

    name = "cgroup v2"

    def apply(self, uid: str, pid: int, size: int, *, used: int, on_exceeded: OnExceeded) -> None:  # noqa: ARG002
        """Raises OSError."""
        # In version 2 the CPU limit uses the same group: being inside does not imply a memory
        # limit.
        is_inside = self._groups.contains(uid, pid)
        group = self._groups.group(uid) if is_inside else self._groups.recreate(uid)
        if group.read("memory.max").strip() == "max":
            group.write("memory.oom.group", "1")
            with suppress(FileNotFoundError):
                group.write("memory.swap.max", "0")
        charged = _charged_bytes(group) if is_inside else 0
        # Written last: if it is set, so are the others.
        group.write("memory.max", str(max(size - used + charged, 0)))
        if not is_inside:
            self._groups.add(uid, pid)
