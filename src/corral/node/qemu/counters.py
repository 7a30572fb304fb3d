"""What QEMU and the kernel have counted of a guest; asking wakes QEMU's monitor, not the guest.

A guest may have broken into its QEMU, so the answers are not believed either.
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
    stats: dict[str, Any]  # those of an empty drive are none
    node_name: str = ""


class _Thread(msgspec.Struct, rename="kebab"):
    cpu_index: int
    thread_id: int


class _Balloon(msgspec.Struct):
    actual: int


async def count(monitor: Monitor, pid: int, vmi: VirtualMachineInstance) -> Counters:
    """Everything that is counted of an instance's guest.  Raises MonitorError."""
    blocks = _understood(await monitor.execute("query-blockstats"), list[_Block])
    threads = _understood(await monitor.execute("query-cpus-fast"), list[_Thread])
    user, system = _process(pid)
    return Counters(
        disks=dict(_disks(blocks, vmi)),
        processors=dict(_processors(threads, pid)),
        user_nanos=user,
        system_nanos=system,
        balloon_bytes=await _balloon(monitor),
    )


def _understood(answer: object, form: type[T]) -> T:
    """Raises MonitorError."""
    try:
        return msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise MonitorError(f"not the answer that was asked for: {error}") from error


def _disks(blocks: list[_Block], vmi: VirtualMachineInstance) -> Iterator[tuple[str, Disk]]:
    names = [disk.name for disk in vmi.spec.domain.devices.disks]
    volumes = {node_of(vmi, name): name for name in names}
    for block in blocks:
        if (volume := volumes.get(block.node_name)) is not None:
            told = _understood(block.stats, _Stats)
            reads = Flow(told.rd_operations, told.rd_bytes, told.rd_total_time_ns)
            writes = Flow(told.wr_operations, told.wr_bytes, told.wr_total_time_ns)
            flushes = Flow(told.flush_operations, 0, told.flush_total_time_ns)
            yield volume, Disk(reads, writes, flushes)


def _processors(threads: list[_Thread], pid: int) -> Iterator[tuple[int, Processor]]:
    """The kernel's account of the thread of each processor; none where it keeps no such account."""
    for thread in threads:
        with suppress(OSError, ValueError):
            path = Path(f"/proc/{pid}/task/{thread.thread_id}/schedstat")
            ran, waited, _ = path.read_text(encoding="ascii").split()
            yield thread.cpu_index, Processor(int(ran), int(waited))


def _process(pid: int) -> tuple[int, int]:
    """Processor time of a process in user mode and in the kernel; nothing once it has ended."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # from the third one on (proc_pid_stat(5))
        return int(fields[11]) * _TICK_NANOS, int(fields[12]) * _TICK_NANOS
    return 0, 0


async def _balloon(monitor: Monitor) -> int | None:
    with suppress(MonitorError):  # a machine may do without one
        return _understood(await monitor.execute("query-balloon"), _Balloon).actual
    return None
