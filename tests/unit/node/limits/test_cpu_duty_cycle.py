"""Bounding real processes by stopping them."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from corral.node.host import process
from corral.node.host.proc import acquire_lock
from corral.node.limits.cpu_duty_cycle import DutyCycle, wake

SPIN = ["sh", "-c", "while :; do :; done"]


@pytest.fixture
def spinning():
    started = []

    def spin():
        one = subprocess.Popen(SPIN)
        started.append(one)
        return one

    yield spin
    for one in started:
        one.kill()
        one.wait()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def stands_still(pid):
    async with asyncio.timeout(60):
        while state(pid) != "T":
            await asyncio.sleep(0.001)


class Processes:
    """Processes that work whenever they may, in the time of the test's loop."""

    def __init__(self, count):
        self.used = dict.fromkeys(range(count), 0.0)
        self.running = set(self.used)
        self.moment = self.now()

    def now(self):
        return asyncio.get_running_loop().time()

    def pass_time(self):
        now = self.now()
        for pid in self.running:
            self.used[pid] += now - self.moment
        self.moment = now

    def cpu_nanos(self, pid):
        self.pass_time()
        return int(self.used[pid] * 1e9)

    def send(self, process, number):
        self.pass_time()
        (self.running.add if number is signal.SIGCONT else self.running.remove)(process.pid)


@pytest.mark.looptime
async def test_one_timer_limits_many_processes_to_their_shares(monkeypatch):
    shares = (0.05, 0.1, 0.2)
    processes = Processes(len(shares))
    monkeypatch.setattr("corral.node.limits.cpu_duty_cycle.cpu_nanos", processes.cpu_nanos)
    monkeypatch.setattr("corral.node.limits.cpu_duty_cycle._send", processes.send)
    monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open(os.devnull, os.O_RDONLY))
    cycle = DutyCycle()
    for pid, share in enumerate(shares):
        cycle.apply(str(pid), pid, int(share * 1e9))
    await asyncio.sleep(60)
    for pid, share in enumerate(shares):
        assert processes.cpu_nanos(pid) / 60e9 == pytest.approx(share, rel=0.1)
        cycle.release(str(pid))
    assert processes.running == set(processes.used)


@pytest.mark.looptime
async def test_a_changed_share_counts_at_once(monkeypatch):
    processes = Processes(1)
    monkeypatch.setattr("corral.node.limits.cpu_duty_cycle.cpu_nanos", processes.cpu_nanos)
    monkeypatch.setattr("corral.node.limits.cpu_duty_cycle._send", processes.send)
    monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open(os.devnull, os.O_RDONLY))
    cycle = DutyCycle()
    cycle.apply("a", 0, 100_000_000)
    await asyncio.sleep(60)
    before = processes.cpu_nanos(0)
    cycle.apply("a", 0, 400_000_000)
    await asyncio.sleep(60)
    assert (processes.cpu_nanos(0) - before) / 60e9 == pytest.approx(0.4, rel=0.1)
    cycle.release("a")


async def test_a_released_process_runs_on(spinning):
    cycle = DutyCycle()
    pid = spinning().pid
    cycle.apply("a", pid, 1_000_000)
    await stands_still(pid)
    cycle.release("a")
    cycle.release("a")
    assert state(pid) != "T"


async def test_a_finished_process_is_ignored_and_its_successor_limited(spinning):
    cycle = DutyCycle()
    first = spinning()
    cycle.apply("a", first.pid, 1_000_000)
    first.kill()
    first.wait()
    await asyncio.sleep(0.3)
    second = spinning()
    cycle.apply("a", second.pid, 1_000_000)
    await stands_still(second.pid)
    cycle.remove("a")
    with pytest.raises(ProcessLookupError):
        cycle.apply("b", first.pid, 1_000_000)


async def test_processes_stopped_by_an_earlier_manager_are_resumed(tmp_path):
    lock = acquire_lock(tmp_path)
    output = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    started = process.Process.spawn(SPIN, tmp_path, descriptors=[lock], output=output)
    os.close(lock)
    os.close(output)
    pid = started.identity.pid
    os.kill(pid, signal.SIGSTOP)
    await stands_still(pid)
    wake(tmp_path)
    assert state(pid) != "T"
    await started.end()
    wake(tmp_path)
    wake(tmp_path / "unheard-of")
