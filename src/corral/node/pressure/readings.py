"""Available resources of the host: memory, disk space, inodes, process ids."""

import os
from collections.abc import Iterator
from pathlib import Path

from corral.node.pressure.thresholds import Observation, Observations

_MEMINFO = Path("/proc/meminfo")
_LOADAVG = Path("/proc/loadavg")
_ID_LIMITS = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))


def observe(data: Path, images: Path) -> Observations:
    """Return all observations: five small files, and two system calls.  Raises OSError."""
    return {
        "memory.available": _memory(_MEMINFO.read_text(encoding="ascii")),
        "pid.available": _pids(_LOADAVG.read_text(encoding="ascii")),
        **dict(_file_system("nodefs", data)),
        **dict(_file_system("imagefs", images)),
    }


def _memory(meminfo: str) -> Observation:
    """Return what is available without swapping, by the kernel's own estimate.

    A kubelet counts files that were read twice as in use, of which a desktop has gigabytes.
    """
    lines = (line.partition(":") for line in meminfo.splitlines())
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in lines}
    return Observation(kilobytes["MemAvailable"] * 1024, kilobytes["MemTotal"] * 1024)


def _pids(load: str) -> Observation:
    """Return the available ids; threads use them, too: ``running/all`` is the fourth word."""
    used = int(load.split()[3].partition("/")[2])
    limit = min(int(path.read_text(encoding="ascii")) for path in _ID_LIMITS)
    return Observation(max(0, limit - used), limit)


def _file_system(name: str, directory: Path) -> Iterator[tuple[str, Observation]]:
    stat = os.statvfs(directory)
    capacity = stat.f_blocks * stat.f_frsize
    yield f"{name}.available", Observation(stat.f_bavail * stat.f_frsize, capacity)
    if stat.f_files:
        yield f"{name}.inodesFree", Observation(stat.f_favail, stat.f_files)
