"""Resource usage of the host, on the CPUs of our affinity mask, and its division among nodes."""

import os
from collections.abc import Mapping
from pathlib import Path

from corral.node.hypervisor import Usage

_STAT = Path("/proc/stat")
_MEMORY = Path("/proc/meminfo")
_NANOS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields of a processor's line: user, nice, system, irq, softirq, steal; guests are in user."""


def host_usage() -> Usage:
    """Return the host's CPU time since boot, and its working set as a kubelet computes it.

    Only CPUs of our affinity mask count, since they are the capacity of our nodes.
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
    """Return used memory less inactive page cache, as a kubelet does."""
    kilobytes = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in meminfo.splitlines())
    }
    used = kilobytes["MemTotal"] - kilobytes["MemFree"]
    return max(0, used - kilobytes.get("Inactive(file)", 0)) * 1024


def shares(host: Usage, machines: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return by node the usage of its machines plus an equal part of the host's other usage.

    A single node gets the usage of the whole host.
    """
    other_nanos = host.cpu_nanos - sum(one.cpu_nanos for one in machines.values())
    other_bytes = host.memory_bytes - sum(one.memory_bytes for one in machines.values())
    return {
        node: Usage(
            own.cpu_nanos + max(0, other_nanos) // len(machines),
            own.memory_bytes + max(0, other_bytes) // len(machines),
        )
        for node, own in machines.items()
    }
