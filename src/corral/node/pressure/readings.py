"""What the host has left: memory, room on its file systems, and process ids."""

import os
from collections.abc import Iterator
from pathlib import Path

from corral.node.pressure.thresholds import Observation, Observations

_MEMORY = Path("/proc/meminfo")
_LOAD = Path("/proc/loadavg")
_MOST_IDS = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))


def look(data: Path, images: Path) -> Observations:
    """One look at everything: five small files, and two calls.  Raises OSError.

    ``data``: the directory of machines (a kubelet's nodefs); ``images``: that of their images.
    """
    return {
        "memory.available": _memory(_MEMORY.read_text(encoding="ascii")),
        "pid.available": _ids(_LOAD.read_text(encoding="ascii")),
        **dict(_file_system("nodefs", data)),
        **dict(_file_system("imagefs", images)),
    }


def _memory(meminfo: str) -> Observation:
    """What can be had without swapping: the kernel's own estimate.

    A kubelet counts files that were read twice as in use, of which a desktop has gigabytes.
    """
    lines = (line.partition(":") for line in meminfo.splitlines())
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in lines}
    return Observation(kilobytes["MemAvailable"] * 1024, kilobytes["MemTotal"] * 1024)


def _ids(load: str) -> Observation:
    """Threads take ids, too: ``running/all`` is the fourth word."""
    taken = int(load.split()[3].partition("/")[2])
    most = min(int(path.read_text(encoding="ascii")) for path in _MOST_IDS)
    return Observation(max(0, most - taken), most)


def _file_system(name: str, directory: Path) -> Iterator[tuple[str, Observation]]:
    seen = os.statvfs(directory)
    whole = seen.f_blocks * seen.f_frsize
    yield f"{name}.available", Observation(seen.f_bavail * seen.f_frsize, whole)
    if seen.f_files:
        yield f"{name}.inodesFree", Observation(seen.f_favail, seen.f_files)
