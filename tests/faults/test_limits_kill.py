"""The manager is killed between any two steps of bounding a machine, and while one is stopped."""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.limited_machine import BUSY, Limited, disk_with, greedy, living
from tests.real_machine import hypervisor, new_directory

from corral.node.host.process import read_record, runs
from corral.node.limits.bounds import Bounds
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.limits import Limits
from corral.node.limits.memory_watch import ResidentSet
from corral.node.limits.probe import Limiters, group_prefix

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BOUNDS = Bounds(cpu_nanos=50_000_000, memory_bytes=200 << 20)

MANAGER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.faults.test_limits_kill import BOUNDS, limits
from tests.limited_machine import Limited
from corral.node.limits import cgroup_methods, cgroup_paths, cpu_duty_cycle
from corral.node.qemu.hypervisor import Qemu

kind, kill_at, data, directory, disk = sys.argv[1:3] + [Path(each) for each in sys.argv[3:6]]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def stop_and_die(process, number):
    signal.pidfd_send_signal(process.pidfd, number)
    if number is signal.SIGSTOP:
        die()

async def main():
    qemu = Qemu(directory.parent)
    await qemu.prepare()
    one = Limited(qemu, directory, disk, BOUNDS, limits(kind, data, directory))
    if kill_at == "group made":
        cgroup_paths.MachineGroups.add = die
    if kill_at == "one of two":
        cgroup_methods.CpuCgroup1.apply = cgroup_methods.CpuCgroup2.apply = die
    if kill_at == "stopped":
        cpu_duty_cycle._send = stop_and_die
    known = one.step
    def step(name):
        known(name)
        if name == kill_at:
            die()
    one.machine._state.step = step
    await one.run()

asyncio.run(main())
"""


def limits(kind, data, directory):
    """A manager's: without the kernel's help, or what this host has."""
    if kind == "stopping":
        return Limits(data, Limiters(DutyCycle(), ResidentSet(), "chosen by a test"))
    return Limits(data, existing=lambda: {directory.name})


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def stopped(pid):
    """Until it stands still."""
    async with asyncio.timeout(300):
        while state(pid) != "T":
            await asyncio.sleep(0.001)


def groups(data):
    return [*Path("/sys/fs/cgroup").rglob(f"{group_prefix(data)}*")]


@pytest.mark.parametrize(
    ("kind", "kill_at"),
    [
        ("best", "spawned"),
        ("best", "group made"),
        ("best", "one of two"),
        ("best", "bounded"),
        ("best", "recorded"),
        ("best", "resumed"),
        ("stopping", "bounded"),
        ("stopping", "resumed"),
        ("stopping", "stopped"),
    ],
)
async def test_a_restarted_manager_limits_the_machine_and_leaves_nothing(tmp_path, kind, kill_at):
    machines = tmp_path / "machines"
    machines.mkdir(mode=0o711)
    disk, directory = disk_with(tmp_path, BUSY), new_directory(machines)
    async with hypervisor(machines) as qemu:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MANAGER, kind, kill_at, tmp_path, directory, disk,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        )  # fmt: skip
        assert await child.wait() == -signal.SIGKILL
        before = read_record(directory)
        if kill_at == "stopped":
            await stopped(before.pid)  # the stop has to reach each of its threads
        one = Limited(qemu, directory, disk, Bounds(), limits(kind, tmp_path, directory))
        assert one.machine.record.bounds == BOUNDS  # on record since before there was a process
        async with living(one):
            assert await one.running() == before.pid
            if kind == "stopping":
                await stopped(before.pid)  # somebody bounds it again
            else:
                cgroups = Path(f"/proc/{before.pid}/cgroup").read_text()
                assert cgroups.count(f"{group_prefix(tmp_path)}{directory.name}") == len(
                    groups(tmp_path)
                )
        assert not runs(directory)
        assert not groups(tmp_path)


@pytest.fixture
async def ran_out(tmp_path):
    """A machine that the kernel has ended for its memory while no manager was there."""
    machines = tmp_path / "machines"
    machines.mkdir(mode=0o711)
    disk, directory = disk_with(tmp_path, greedy(60)), new_directory(machines)
    first = limits("best", tmp_path, directory)
    await first.prepare()
    if "memory by looking" in first.facts()["limits"]:
        pytest.fail("this host has no memory groups: run this as root, or in a delegated group")
    async with hypervisor(machines) as qemu:
        one = Limited(qemu, directory, disk, Bounds(memory_bytes=50 << 20), first)
        known = one.step

        def step(name):
            known(name)
            if name == "resumed":  # its guest takes memory from here on
                life.cancel()

        one.machine._state.step = step
        life = asyncio.create_task(one.run())
        await asyncio.wait({life})
        pid = read_record(directory).pid
        async with asyncio.timeout(300):
            while Path(f"/proc/{pid}").exists() and state(pid) != "Z":
                await asyncio.sleep(0.1)
        yield partial(Limited, qemu, directory, disk, Bounds())


async def test_a_restarted_manager_reports_why_a_machine_ended(ran_out, tmp_path):
    """The count of the kernel is read by the next manager, before the group is removed."""
    known = {entry.name for entry in (tmp_path / "machines").iterdir()}
    later = Limits(tmp_path, existing=lambda: known)
    await later.prepare()
    again = ran_out(later)
    await again.run()
    assert again.machine.facts.out_of_memory
    assert not groups(tmp_path)


async def test_stopping_machines_from_another_process_finds_their_cgroups(ran_out, tmp_path):
    """As ``corral down`` does, which bounds nothing itself."""
    down = ran_out(Limits(tmp_path))
    await down.machine.run(None, down.prepare)
    assert down.machine.record.out_of_memory
    assert not groups(tmp_path)


async def test_a_kill_between_the_oom_count_and_the_record_loses_neither(ran_out, tmp_path):
    first = ran_out(Limits(tmp_path))
    first.machine._state.record_end = lambda _facts: asyncio.current_task().cancel()
    first.machine._limits.remove = asyncio.Event().wait  # it is cancelled where it waits
    with pytest.raises(asyncio.CancelledError):
        await first.run()
    assert groups(tmp_path)
    again = ran_out(Limits(tmp_path))
    await again.run()
    assert again.machine.record.out_of_memory
    assert not groups(tmp_path)
