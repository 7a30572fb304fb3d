"""Memory limits of real processes by samples of their resident memory."""

import asyncio
import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.node.host.process import cpu_nanos
from corral.node.limits.memory_watch import ResidentSet, own_bytes

HOARD = "import sys; held = bytearray(b'x') * (int(sys.argv[1]) << 20); print('up'); input()"


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def hoarding():
    started = []

    def hoard(megabytes):
        one = subprocess.Popen(
            [sys.executable, "-c", HOARD, str(megabytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(one)
        one.stdout.readline()
        while state(one.pid) != "S":  # it has something to do until it waits for its end
            assert one.poll() is None, "it has ended"
            time.sleep(0.001)
        return one.pid

    yield hoard
    for one in started:
        one.communicate()


@pytest.fixture
def looks(monkeypatch):
    """The processes whose memory was looked at, in passes that come without a pause."""
    looks = SimpleNamespace(passes=0, memory=[])

    def counted(pid):
        looks.passes += 1
        return cpu_nanos(pid)

    def looked(pid):
        looks.memory.append(pid)
        return own_bytes(pid)

    monkeypatch.setattr("corral.node.limits.memory_watch.cpu_nanos", counted)
    monkeypatch.setattr("corral.node.limits.memory_watch.own_bytes", looked)
    monkeypatch.setattr("corral.node.limits.memory_watch.SAMPLE_SECONDS", 0.001)
    return looks


async def looked_again(looks):
    """So many more passes are over."""
    count = looks.passes
    async with asyncio.timeout(60):
        while looks.passes < count + 10:
            await asyncio.sleep(0.001)


async def test_exceeded_memory_is_reported_once(hoarding, looks):
    watch = ResidentSet()
    over = []
    for name, megabytes in (("small", 1), ("large", 80)):
        watch.apply(
            name, hoarding(megabytes), 60 << 20, used=0, on_exceeded=lambda n=name: over.append(n)
        )
    async with asyncio.timeout(60):
        while not over:
            await asyncio.sleep(0.001)
    await looked_again(looks)
    assert over == ["large"]
    watch.remove("small")
    watch.remove("large")


def test_page_cache_does_not_count(hoarding):
    pid = hoarding(50)
    assert 50 << 20 < own_bytes(pid) < 80 << 20
    assert own_bytes(os.getpid()) > 0


async def test_a_failed_sample_is_not_the_last(hoarding, monkeypatch):
    """No descriptor may be left for a moment."""
    looks = []

    def without_descriptors(pid):
        looks.append(pid)
        if len(looks) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return own_bytes(pid)

    monkeypatch.setattr("corral.node.limits.memory_watch.own_bytes", without_descriptors)
    watch, over = ResidentSet(), asyncio.Event()
    watch.apply("large", hoarding(80), 60 << 20, used=0, on_exceeded=over.set)
    async with asyncio.timeout(60):
        await over.wait()


async def test_a_process_that_did_not_run_is_not_sampled(hoarding, looks):
    watch, over = ResidentSet(), asyncio.Event()
    idle = hoarding(1)
    watch.apply("idle", idle, 1 << 40, used=0, on_exceeded=lambda: None)
    watch.apply("large", hoarding(80), 60 << 20, used=0, on_exceeded=over.set)
    await over.wait()
    await looked_again(looks)
    assert looks.memory.count(idle) == 1


def test_without_free_descriptors_a_process_does_not_count_as_finished():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            own_bytes(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_finished_process_is_reported():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        own_bytes(ended.pid)
