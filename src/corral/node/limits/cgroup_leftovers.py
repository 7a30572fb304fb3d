"""What is left of a machine in the kernel's groups: why it ended, and the groups themselves.

The paths of the groups are on the machine's record.  So whoever ends it finds them, also from
another group, as ``corral down`` does, and whichever way bounds machines by then.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from corral.node.limits.cgroup import Directory, Group

_UNBOUNDED = {"cpu.max": "max", "cpu.cfs_quota_us": "-1"}


def ran_out(groups: Iterable[str]) -> bool:
    """Whether the kernel has ended a machine because it wanted more memory than it may have."""
    return any(was_exceeded(Directory(Path(path))) for path in groups)


def lift(groups: Iterable[str]) -> None:
    """Let what is in groups have as much of the processors as it likes."""
    for path in groups:
        for setting, value in _UNBOUNDED.items():
            with suppress(OSError):
                Directory(Path(path)).write(setting, value)


def remove(groups: Iterable[str]) -> None:
    """Remove groups; one whose processes are about to go is swept later."""
    for path in groups:
        with suppress(OSError):
            Directory(Path(path)).remove()


def was_exceeded(group: Group) -> bool:
    """Whether a process was ended in a group that was at its limit.

    The kernel counts who is ended for want of memory wherever that was wanting, on the whole host
    too; that the limit was hit is another count.
    """
    ended, hit = _count(group, "memory.events", "oom_kill"), _count(group, "memory.events", "oom")
    if not ended:  # version 1
        ended = _count(group, "memory.oom_control", "oom_kill")
        hit = _was_full(group, "memory") or _was_full(group, "memory.memsw")
    return bool(ended and hit)


def _count(group: Group, setting: str, name: str) -> int:
    """A number in a file of names and numbers; 0 where it is not there."""
    lines = (line.partition(" ") for line in _text(group, setting).splitlines())
    return sum(int(value) for key, _, value in lines if key == name)


def _was_full(group: Group, what: str) -> bool:
    """Whether a group of version 1 had all that it may: newer kernels leave its failcnt 0."""
    most, limit = _text(group, f"{what}.max_usage_in_bytes"), _text(group, f"{what}.limit_in_bytes")
    return bool(most and limit and int(most) >= int(limit))


def _text(group: Group, setting: str) -> str:
    try:
        return group.read(setting)
    except OSError:
        return ""
