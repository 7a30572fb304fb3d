"""Limits by cgroups of both versions."""

import errno
from contextlib import suppress

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


def quota(nanos: int) -> tuple[int, int]:
    """Return the quota and the period of a group, in microseconds.

    A quota below the kernel's minimum gets a longer period.
    """
    period = PERIOD_MICROS
    while nanos * period < MIN_QUOTA_MICROS * 10**9 and period < _MAX_PERIOD_MICROS:
        period *= 2
    period = min(period, _MAX_PERIOD_MICROS)
    return max(nanos * period // 10**9, MIN_QUOTA_MICROS), period


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
        if self._groups.contains(uid, pid):
            return
        group = self._groups.recreate(uid)
        time, period = quota(nanos)
        group.write("cpu.cfs_period_us", str(period))
        try:
            group.write("cpu.cfs_quota_us", str(time))
        except OSError as error:
            if error.errno != errno.EINVAL:  # above the limit of the parent group, which applies
                raise
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
        if self._groups.contains(uid, pid):
            return
        group = self._groups.recreate(uid)
        limit_bytes = str(max(size - used, 0))
        group.write("memory.limit_in_bytes", limit_bytes)
        with suppress(FileNotFoundError):
            group.write("memory.memsw.limit_in_bytes", limit_bytes)
        self._groups.add(uid, pid)


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
            # Written last: if it is set, so are the others.
            group.write("memory.max", str(max(size - used, 0)))
        if not is_inside:
            self._groups.add(uid, pid)
