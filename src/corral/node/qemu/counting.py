"""What QEMU and the kernel have counted of a guest; asking wakes QEMU's monitor, not the guest."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node.counters import Counters, Disk, Flow, Processor
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.monitor import Monitor, MonitorError

_TICK_NANOS = 10**9 // os.sysconf("SC_CLK_TCK")


async def count(monitor: Monitor, pid: int, vmi: VirtualMachineInstance) -> Counters:
    """Everything that is counted of an instance's guest.  Raises MonitorError."""
    blocks = await monitor.execute("query-blockstats")
    threads = await monitor.execute("query-cpus-fast")
    user, system = _process(pid)
    return Counters(
        disks=dict(_disks(blocks, vmi)),
        processors=dict(_processors(threads, pid)),
        user_nanos=user,
        system_nanos=system,
        balloon_bytes=await _balloon(monitor),
    )


def _disks(
    blocks: list[Mapping[str, Any]], vmi: VirtualMachineInstance
) -> Iterator[tuple[str, Disk]]:
    names = [disk.name for disk in vmi.spec.domain.devices.disks]
    volumes = {node_of(vmi, name): name for name in names}
    for block in blocks:
        if (volume := volumes.get(block.get("node-name", ""))) is not None:
            told = block["stats"]
            reads, writes, flushes = (_flow(told, kind) for kind in ("rd", "wr", "flush"))
            yield volume, Disk(reads, writes, flushes)


def _flow(told: Mapping[str, int], kind: str) -> Flow:
    return Flow(
        count=told[f"{kind}_operations"],
        bytes=told.get(f"{kind}_bytes", 0),
        nanos=told[f"{kind}_total_time_ns"],
    )


def _processors(threads: list[Mapping[str, Any]], pid: int) -> Iterator[tuple[int, Processor]]:
    """The kernel's account of the thread of each processor; none where it keeps no such account."""
    for thread in threads:
        with suppress(OSError, ValueError):
            path = Path(f"/proc/{pid}/task/{int(thread['thread-id'])}/schedstat")
            ran, waited, _ = path.read_text(encoding="ascii").split()
            yield int(thread["cpu-index"]), Processor(int(ran), int(waited))


def _process(pid: int) -> tuple[int, int]:
    """Processor time of a process in user mode and in the kernel; nothing once it has ended."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # from the third one on (proc_pid_stat(5))
        return int(fields[11]) * _TICK_NANOS, int(fields[12]) * _TICK_NANOS
    return 0, 0


async def _balloon(monitor: Monitor) -> int | None:
    with suppress(MonitorError):  # a machine may do without one
        return int((await monitor.execute("query-balloon"))["actual"])
    return None
