"""What the whole host takes: processor time and memory, of the processors that we may use."""

import os
from pathlib import Path

from corral.node.hypervisor import Usage

_STAT = Path("/proc/stat")
_MEMORY = Path("/proc/meminfo")
_NANOS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields of a processor's line: user, nice, system, irq, softirq, steal; guests are in user."""


def host_usage() -> Usage:
    """Processor time since the host was started, and its working set (a kubelet's words).

    A manager that may use some of the processors only tells of these: they are what its nodes have.
    """
    return Usage(
        _cpu_nanos(_STAT.read_text(encoding="ascii"), os.sched_getaffinity(0)),
        _working_set(_MEMORY.read_text(encoding="ascii")),
    )


def _cpu_nanos(stat: str, processors: set[int]) -> int:
    ticks = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in processors:
            ticks += sum(int(fields[index]) for index in _BUSY)
    return ticks * _NANOS_PER_TICK


def _working_set(meminfo: str) -> int:
    """What is in use less the files that could be dropped at once, as a kubelet counts it."""
    kilobytes = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in meminfo.splitlines())
    }
    used = kilobytes["MemTotal"] - kilobytes["MemFree"]
    return max(0, used - kilobytes.get("Inactive(file)", 0)) * 1024
