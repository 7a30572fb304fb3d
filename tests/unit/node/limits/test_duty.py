"""Bounding real processes by stopping them."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from corral.node import process
from corral.node.limits.duty import DutyCycle, wake
from corral.node.process import cpu_nanos

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


async def used(pids, seconds):
    begun = time.monotonic()
    before = [cpu_nanos(pid) for pid in pids]
    await asyncio.sleep(seconds)
    passed = time.monotonic() - begun
    return [(cpu_nanos(pid) - old) / 1e9 / passed for pid, old in zip(pids, before, strict=True)]


async def test_many_are_bounded_by_one_timer_each_to_its_own_share(spinning):
    shares = (0.05, 0.1, 0.2)
    cycle = DutyCycle()
    pids = [spinning().pid for _ in shares]
    for share, pid in zip(shares, pids, strict=True):
        cycle.hold(str(pid), pid, int(share * 1e9))
    await asyncio.sleep(1)
    for share, got in zip(shares, await used(pids, 5), strict=True):
        assert got < share + 0.1  # a look may be late; what that cost is paid back afterwards
    for pid in pids:
        cycle.release(str(pid))


async def test_who_is_let_go_runs_on(spinning):
    cycle = DutyCycle()
    pid = spinning().pid
    cycle.hold("a", pid, 1_000_000)
    while state(pid) != "T":
        await asyncio.sleep(0.001)
    cycle.release("a")
    cycle.release("a")
    assert state(pid) != "T"


async def test_a_process_that_has_ended_is_no_trouble_and_its_successor_is_bounded(spinning):
    cycle = DutyCycle()
    first = spinning()
    cycle.hold("a", first.pid, 1_000_000)
    first.kill()
    first.wait()
    await asyncio.sleep(0.3)
    second = spinning()
    cycle.hold("a", second.pid, 1_000_000)
    while state(second.pid) != "T":
        await asyncio.sleep(0.001)
    cycle.clear("a")
    with pytest.raises(ProcessLookupError):
        cycle.hold("b", first.pid, 1_000_000)


async def test_what_an_earlier_manager_has_stopped_is_woken(tmp_path):
    lock = process.hold(tmp_path)
    output = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    started = process.Process.spawn(SPIN, tmp_path, descriptors=[lock], output=output)
    os.close(lock)
    os.close(output)
    pid = started.identity.pid
    os.kill(pid, signal.SIGSTOP)
    while state(pid) != "T":
        await asyncio.sleep(0.001)
    wake(tmp_path)
    assert state(pid) != "T"
    await started.end()
    wake(tmp_path)
    wake(tmp_path / "unheard-of")
