"""Who takes a little now and then is waited for; who takes nothing is not."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from corral.server.transport.slow_reader import Uptake


class Client:
    """A connection whose other side has acknowledged so many bytes."""

    def __init__(self):
        self.taken = 0

    def get_extra_info(self, name):
        assert name == "socket"
        return SimpleNamespace(
            getsockopt=lambda level, option, size: struct.pack("=120xQ", self.taken)
        )


@pytest.fixture
def client():
    return Client()


@pytest.mark.looptime
async def test_who_takes_nothing_is_lost(client, looptime):
    lost = asyncio.Event()
    client.taken = 5000
    Uptake(client, 60, lost.set)
    await lost.wait()
    assert looptime == 60


@pytest.mark.looptime
async def test_who_takes_a_little_is_not(client, looptime):
    lost = asyncio.Event()
    Uptake(client, 60, lost.set)
    for _ in range(100):
        await asyncio.sleep(59)
        client.taken += 1
        assert not lost.is_set()
    await lost.wait()
    assert 60 <= looptime - 5900 <= 120


@pytest.mark.looptime
async def test_who_need_not_is_left_alone(client):
    lost = asyncio.Event()
    uptake = Uptake(client, 60, lost.set)
    await asyncio.sleep(30)
    client.taken += 1
    await asyncio.sleep(60)
    uptake.cancel()
    await asyncio.sleep(600)
    assert not lost.is_set()


@pytest.mark.looptime
async def test_what_is_no_connection_takes_nothing(looptime):
    lost = asyncio.Event()
    Uptake(SimpleNamespace(get_extra_info=lambda name: None), 60, lost.set)
    await lost.wait()
    assert looptime == 60
