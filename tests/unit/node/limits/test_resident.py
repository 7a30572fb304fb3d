"""Bounding real processes by looking at what they hold."""

import asyncio
import os
import subprocess
import sys

import pytest

from corral.node.limits.resident import ResidentSet, own_bytes

HOARD = "import sys; held = bytearray(b'x') * (int(sys.argv[1]) << 20); print('up'); input()"


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
        return one.pid

    yield hoard
    for one in started:
        one.communicate()


async def test_who_holds_too_much_is_told_of_once(hoarding):
    watch = ResidentSet()
    over = []
    for name, megabytes in (("small", 1), ("large", 80)):
        watch.hold(name, hoarding(megabytes), 60 << 20, held=0, over=lambda n=name: over.append(n))
    async with asyncio.timeout(20):
        while not over:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)
    assert over == ["large"]
    watch.clear("small")
    watch.clear("large")


def test_what_is_read_from_files_does_not_count(hoarding):
    pid = hoarding(50)
    assert 50 << 20 < own_bytes(pid) < 80 << 20
    assert own_bytes(os.getpid()) > 0


def test_a_process_that_has_ended_is_named():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        own_bytes(ended.pid)
