"""The groups of a machine that has ended or is about to: why it ended, and their removal.

Their paths are part of the machine's record, so that they are found from another group, too, as by
``corral down``, whatever method limits machines by then.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from corral.node.limits.cgroup import Directory, Group

_UNLIMITED = {"cpu.max": "max", "cpu.cfs_quota_us": "-1"}


def was_oom_killed(groups: Iterable[str]) -> bool:
    """Report whether the kernel has killed a process of a machine at its memory limit."""
    return any(has_oom_kill(Directory(Path(path))) for path in groups)


def lift_limits(groups: Iterable[str]) -> None:
    """Remove the CPU limits of groups."""
    for path in groups:
        for setting, value in _UNLIMITED.items():
            with suppress(OSError):
                Directory(Path(path)).write(setting, value)


def remove(groups: Iterable[str]) -> None:
    """Remove groups; one whose processes are about to end is swept later."""
    for path in groups:
        with suppress(OSError):
            Directory(Path(path)).remove()


def has_oom_kill(group: Group) -> bool:
    """Report whether a process was killed in a group that was at its limit.

    The kernel counts OOM kills for any reason, also those for want of memory of the whole host;
    that the limit was reached is a count of its own.
    """
    kills, limit_hits = (
        _count(group, "memory.events", "oom_kill"),
        _count(group, "memory.events", "oom"),
    )
    if not kills:  # version 1
        kills = _count(group, "memory.oom_control", "oom_kill")
        limit_hits = _was_full(group, "memory") or _was_full(group, "memory.memsw")
    return bool(kills and limit_hits)


def _count(group: Group, setting: str, name: str) -> int:
    """Return a number in a file of names and numbers; 0 if it is missing."""
    lines = (line.partition(" ") for line in _text(group, setting).splitlines())
    return sum(int(value) for key, _, value in lines if key == name)


def _was_full(group: Group, setting: str) -> bool:
    """Report whether a group of version 1 reached its limit; newer kernels keep failcnt at 0."""
    peak, limit = (
        _text(group, f"{setting}.max_usage_in_bytes"),
        _text(group, f"{setting}.limit_in_bytes"),
    )
    return bool(peak and limit and int(peak) >= int(limit))


def _text(group: Group, setting: str) -> str:
    try:
        return group.read(setting)
    except OSError:
        return ""
