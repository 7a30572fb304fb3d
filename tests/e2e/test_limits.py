"""Limits of real machines, measured from outside: processor time in every way, and memory."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.limited_machine import BUSY, Limited, disk_with, greedy, living
from tests.real_machine import hypervisor, new_directory

from corral.node.host.process import cpu_nanos
from corral.node.limits.bounds import Bounds
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.limits import Limits
from corral.node.limits.memory_watch import ResidentSet, own_bytes
from corral.node.limits.probe import Limiters, find_limiters, group_prefix
from corral.node.qemu.guest import QemuGuest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SHARE = 0.3
SECONDS = 10


@pytest.fixture
async def qemu(tmp_path):
    machines = tmp_path / "machines"
    machines.mkdir(mode=0o711)
    async with hypervisor(machines) as qemu:
        yield qemu


def stopping(_directory):
    return Limiters(DutyCycle(), ResidentSet(), "chosen by a test")


def best(directory):
    return find_limiters(group_prefix(directory))


@pytest.fixture(params=[stopping, best])
def limits(request, tmp_path):
    """Limits of each kind: without the kernel's help, and with what this host has."""
    return Limits(tmp_path, request.param(tmp_path))


@pytest.fixture
def machine(qemu, tmp_path, limits):
    def machine(code, **bounds):
        directory = new_directory(tmp_path / "machines")
        return Limited(qemu, directory, disk_with(tmp_path, code), Bounds(**bounds), limits)

    return machine


def groups(directory):
    """The control groups that are there for a data directory's machines."""
    return [*Path("/sys/fs/cgroup").rglob(f"{group_prefix(directory)}*")]


class Measured:
    """The processor time of a process from now on."""

    def __init__(self, pid, directory):
        self._pid = pid
        self._statistics = [one / "cpu.stat" for one in groups(directory)]
        self._begun = time.monotonic(), cpu_nanos(pid), *self._let_down()

    def _let_down(self):
        """Return the time waited for others, and the group's periods and those that it filled.

        A group that has filled its period waits for itself, so the waiting proves nothing then.
        """
        waited = 0
        for one in Path(f"/proc/{self._pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # a thread has come to its end
                waited += int(one.read_text().split()[1])
        for one in self._statistics:
            if one.exists():
                stat = dict(line.split() for line in one.read_text().splitlines())
                return waited, int(stat["nr_periods"]), int(stat["nr_throttled"])
        return waited, 0, 0

    async def rates(self):
        """The processors that it used, and what share of its limit the host could let it have."""
        await asyncio.sleep(SECONDS)
        before = self._begun
        now = time.monotonic(), cpu_nanos(self._pid), *self._let_down()
        passed, used, waited, periods, full = (
            new - old for new, old in zip(now, before, strict=True)
        )
        had = full / periods if periods else used / (used + waited)
        return used / 1e9 / passed, had


@pytest.mark.alone
async def test_a_busy_guest_gets_its_limit_and_no_more(machine, tmp_path):
    one = machine(BUSY, cpu_nanos=int(SHARE * 1e9))
    async with living(one):
        pid = await one.running()
        assert one.steps.index("bounded") < one.steps.index("resumed")
        used, had = await Measured(pid, tmp_path).rates()
        assert used < SHARE * 1.1
        assert used > SHARE * 0.9 * had
    assert not groups(tmp_path)


async def test_a_limited_guest_can_be_queried_paused_and_stopped(machine):
    one = machine(BUSY, cpu_nanos=20_000_000)
    async with living(one):
        pid = await one.running()
        guest = one.machine.guest
        for _ in range(3):
            await guest.pause()
            await guest.resume()
        guest.lower_priority(True)
        guest.lower_priority(False)
        one.machine.stop(0)
        async with asyncio.timeout(300):
            while not one.machine.facts.ended:
                await asyncio.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


async def test_a_guest_over_its_memory_limit_is_killed_and_reported(machine, tmp_path):
    one = machine(greedy(60), memory_bytes=50 << 20)
    async with living(one):
        await one.running()
        async with asyncio.timeout(300):
            while not one.machine.facts.ended:
                one.recorder.changes.clear()
                await one.recorder.changes.wait()
    assert one.machine.facts.out_of_memory
    assert one.machine.record.out_of_memory
    event_type, reason, message = one.recorder.events[-1]
    assert (event_type, reason) == ("Warning", "Stopped")
    assert "more memory than its pod's limit of 50 MiB" in message
    assert not groups(tmp_path)


async def test_a_guest_within_its_memory_limit_runs(machine):
    one = machine(greedy(60), memory_bytes=140 << 20)
    async with living(one):
        pid = await one.running()
        async with asyncio.timeout(300):
            while own_bytes(pid) < 60 << 20:
                await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        assert not one.machine.facts.ended
    assert not one.machine.facts.out_of_memory


async def test_a_limit_below_qemus_own_memory_is_reported_before_the_guest_runs(machine, tmp_path):
    one = machine(BUSY, memory_bytes=4 << 20)
    async with living(one):
        async with asyncio.timeout(300):
            while one.machine.facts.trouble is None:
                one.recorder.changes.clear()
                await one.recorder.changes.wait()
        trouble = one.machine.facts.trouble
        assert trouble.reason == "MemoryLimitTooLow"
        assert "4 MiB, is less than the" in trouble.message
        assert "resumed" not in one.steps
    assert not groups(tmp_path)


async def test_limits_are_set_before_a_guest_boots(machine, monkeypatch):
    """One that is kept from the processors is not idle."""
    reported = asyncio.get_running_loop().create_future()

    async def booted(_guest, processors):
        reported.set_result(processors)

    monkeypatch.setattr(QemuGuest, "booted", booted)
    async with living(machine(BUSY, cpu_nanos=int(SHARE * 1e9))), asyncio.timeout(300):
        assert await reported == SHARE


def test_the_methods_of_limits_match_the_rights_of_the_user(tmp_path):
    """Root can always use version 1, and whoever was left a group version 2."""
    found = best(tmp_path)
    one = os.geteuid() == 0 and Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
    kernel = {"cgroup v1", "cgroup v2"}
    if one:
        assert {found.cpu.name, found.memory.name} <= kernel
    proved = {found.cpu.name, found.memory.name} <= kernel
    assert (found.reason == "a test process was bounded") is proved
    assert proved or "cgroup v2: " in found.reason
