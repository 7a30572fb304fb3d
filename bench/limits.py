"""What a busy machine gets of its limit, in every way that this host has, and what that costs.

The processor time is read from outside, by the clock of QEMU's process.  What a guest gets depends
on what else the host does: root favours the guest over that, and beside each figure stands how much
it was kept waiting all the same.
"""

import asyncio
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.limited_machine import BUSY, Limited, disk_with, living
from tests.real_machine import hypervisor, new_directory

from bench.figure import Figure
from corral.node.host.process import cpu_nanos
from corral.node.limits.bounds import Bounds
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.limits import Limits
from corral.node.limits.memory_watch import ResidentSet
from corral.node.limits.probe import Limiters, find_limiters, group_prefix

SHARES = (0.1, 0.3, 0.7)
SECONDS = 10.0
IDLE = 100
PIECES = 10
"""The spread is that of so many equal parts of the time."""
_FIRST = -15
_MOST_SHARES = "65536"


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as name:
        directory = Path(name)
        directory.chmod(0o711)  # noqa: ASYNC240
        found = find_limiters(group_prefix(directory))
        ways = [Limiters(DutyCycle(), ResidentSet(), "")]
        if found.cpu.name != DutyCycle.name:
            ways.insert(0, found)
        figures += await _one(directory, ways[0], None)
        for way in ways:
            for share in SHARES:
                figures += await _one(directory, way, share)
        figures.append(await _idle(directory))
    return figures


async def _idle(directory: Path) -> Figure:
    """What it costs to bound many idle machines without the kernel's help: any process does."""
    limits = Limits(directory, Limiters(DutyCycle(), ResidentSet(), ""))
    bounds = Bounds(cpu_nanos=300_000_000, memory_bytes=256 << 20)
    idle = [subprocess.Popen(["sleep", "infinity"]) for _ in range(IDLE)]  # noqa: ASYNC220
    try:
        for one in idle:
            await limits.apply(str(one.pid), one.pid, bounds, fresh=False, on_exceeded=lambda: None)
        await asyncio.sleep(3)
        begun, ours, shares = time.monotonic(), time.process_time(), []
        for _ in range(PIECES):
            await asyncio.sleep(SECONDS / PIECES)
            now, used = time.monotonic(), time.process_time()
            shares.append((used - ours) / (now - begun) * 1e3)
            begun, ours = now, used
    finally:
        for one in idle:
            limits.release(str(one.pid))
            one.kill()
            one.wait()
    return Figure(f"{IDLE} idle machines, {DutyCycle.name}: manager", shares, "m", "≤ 10 m")


async def _one(directory: Path, ways: Limiters, share: float | None) -> list[Figure]:
    """One busy guest, bounded to a share of a processor or not at all."""
    machines = directory / "machines"
    machines.mkdir(mode=0o711, exist_ok=True)
    bounds = Bounds(cpu_nanos=int((share or 0.0) * 1e9))
    name = f"{ways.cpu.name}, {share * 1000:.0f}m" if share else "no limit"
    async with hypervisor(machines) as qemu:
        place = new_directory(machines)
        one = Limited(qemu, place, disk_with(directory, BUSY), bounds, Limits(directory, ways))
        async with living(one):
            pid = await one.running()
            _favour(pid, directory)
            await asyncio.sleep(2)
            return await _watched(name, one, pid, share)


async def _watched(name: str, one: Limited, pid: int, share: float | None) -> list[Figure]:
    guest = one.machine.guest
    used, latencies = [], []
    waited, ours = _waited(pid), time.process_time()
    begun = time.monotonic()
    for piece in range(1, PIECES + 1):
        before, moment = cpu_nanos(pid), time.monotonic()
        while time.monotonic() < begun + SECONDS * piece / PIECES:
            asked = time.monotonic()
            await guest.io_errors(one.vmi)
            latencies.append((time.monotonic() - asked) * 1e3)
            await asyncio.sleep(0.1)
        used.append((cpu_nanos(pid) - before) / 1e6 / (time.monotonic() - moment))
    passed = time.monotonic() - begun
    notes = {"waited for others, s/s": round((_waited(pid) - waited) / passed, 3)}
    whole = sum(used) / len(used)
    goal = f"{share * 900:.0f} to {share * 1100:.0f} over 10 s" if share else ""
    return [
        Figure(f"{name}: used over 10 s", [whole], "m", goal, notes),
        Figure(f"{name}: used in each second", used, "m"),
        Figure(f"{name}: QMP latency", latencies, "ms", "≤ 200 ms" if share else ""),
        Figure(f"{name}: manager", [(time.process_time() - ours) / passed * 1e3], "m"),
    ]


def _favour(pid: int, directory: Path) -> None:
    """Where others have work, too, the guest goes first; only root may say so."""
    if os.geteuid() != 0:
        return
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), _FIRST)
    with suppress(FileNotFoundError):  # a kernel that does not group processes by sessions
        Path(f"/proc/{pid}/autogroup").write_text(str(_FIRST))
    for group in Path("/sys/fs/cgroup").glob(f"cpu/{group_prefix(directory)}*"):
        (group / "cpu.shares").write_text(_MOST_SHARES)


def _waited(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[1]) for one in tasks) / 1e9
