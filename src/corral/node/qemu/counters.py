"""Counters of a guest, from QEMU and the kernel; a query wakes QEMU's main thread, not the guest.

A guest may have broken into its QEMU, so the answers are validated.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import Counters, Disk, Flow, Processor
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.monitor import Monitor, MonitorError

_TICK_NANOS = 10**9 // os.sysconf("SC_CLK_TCK")

T = TypeVar("T")


class _Stats(msgspec.Struct):
    rd_operations: int
    wr_operations: int
    flush_operations: int
    rd_total_time_ns: int
    wr_total_time_ns: int
    flush_total_time_ns: int
    rd_bytes: int = 0
    wr_bytes: int = 0


class _Block(msgspec.Struct, rename="kebab"):
    stats: dict[str, Any]  # an empty drive has none
    node_name: str = ""


class _Thread(msgspec.Struct, rename="kebab"):
    cpu_index: int
    thread_id: int


class _Balloon(msgspec.Struct):
    actual: int


async def count(monitor: Monitor, pid: int, vmi: VirtualMachineInstance) -> Counters:
    """Return all counters of a VMI's guest.  Raises MonitorError."""
    blocks = _converted(await monitor.execute("query-blockstats"), list[_Block])
    threads = _converted(await monitor.execute("query-cpus-fast"), list[_Thread])
    user, system = _process(pid)
    return Counters(
        disks=dict(_disks(blocks, vmi)),
        processors=dict(_processors(threads, pid)),
        user_nanos=user,
        system_nanos=system,
        balloon_bytes=await _balloon(monitor),
    )


def _converted(answer: object, form: type[T]) -> T:
    """Validate an answer.  Raises MonitorError."""
    try:
        return msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise MonitorError(f"unexpected answer: {error}") from error


def _disks(blocks: list[_Block], vmi: VirtualMachineInstance) -> Iterator[tuple[str, Disk]]:
    names = [disk.name for disk in vmi.spec.domain.devices.disks]
    volumes = {node_of(vmi, name): name for name in names}
    for block in blocks:
        if (volume := volumes.get(block.node_name)) is not None:
            stats = _converted(block.stats, _Stats)
            reads = Flow(stats.rd_operations, stats.rd_bytes, stats.rd_total_time_ns)
            writes = Flow(stats.wr_operations, stats.wr_bytes, stats.wr_total_time_ns)
            flushes = Flow(stats.flush_operations, 0, stats.flush_total_time_ns)
            yield volume, Disk(reads, writes, flushes)


def _processors(threads: list[_Thread], pid: int) -> Iterator[tuple[int, Processor]]:
    """Iterate over the vCPUs' scheduling statistics; there are none in some kernels."""
    for thread in threads:
        with suppress(OSError, ValueError):
            path = Path(f"/proc/{pid}/task/{thread.thread_id}/schedstat")
            ran, waited, _ = path.read_text(encoding="ascii").split()
            yield thread.cpu_index, Processor(int(ran), int(waited))


def _process(pid: int) -> tuple[int, int]:
    """Return the CPU time of a process in user and kernel mode; zeros once it has ended."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # from the third field (proc_pid_stat(5))
        return int(fields[11]) * _TICK_NANOS, int(fields[12]) * _TICK_NANOS
    return 0, 0


async def _balloon(monitor: Monitor) -> int | None:
    with suppress(MonitorError):  # a machine may have no balloon
        return _converted(await monitor.execute("query-balloon"), _Balloon).actual
    return None
