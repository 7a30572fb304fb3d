"""Who takes a little now and then is waited for; who takes nothing is not."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from corral.server.transport.slow_reader import StallTimer


class Client:
    """A connection whose other side has acknowledged so many bytes."""

    def __init__(self):
        self.acknowledged = 0

    def get_extra_info(self, name):
        assert name == "socket"
        return SimpleNamespace(
            getsockopt=lambda level, option, size: struct.pack("=120xQ", self.acknowledged)
        )


@pytest.fixture
def client():
    return Client()


@pytest.mark.looptime
async def test_a_client_that_reads_nothing_is_stalled(client, looptime):
    stalled = asyncio.Event()
    client.acknowledged = 5000
    StallTimer(client, 60, stalled.set)
    await stalled.wait()
    assert looptime == 60


@pytest.mark.looptime
async def test_a_slow_client_is_not_stalled(client, looptime):
    stalled = asyncio.Event()
    StallTimer(client, 60, stalled.set)
    for _ in range(100):
        await asyncio.sleep(59)
        client.acknowledged += 1
        assert not stalled.is_set()
    await stalled.wait()
    assert 60 <= looptime - 5900 <= 120


@pytest.mark.looptime
async def test_a_cancelled_timer_does_not_fire(client):
    stalled = asyncio.Event()
    stall_timer = StallTimer(client, 60, stalled.set)
    await asyncio.sleep(30)
    client.acknowledged += 1
    await asyncio.sleep(60)
    stall_timer.cancel()
    await asyncio.sleep(600)
    assert not stalled.is_set()


@pytest.mark.looptime
async def test_a_transport_without_a_socket_counts_as_stalled(looptime):
    stalled = asyncio.Event()
    StallTimer(SimpleNamespace(get_extra_info=lambda name: None), 60, stalled.set)
    await stalled.wait()
    assert looptime == 60
