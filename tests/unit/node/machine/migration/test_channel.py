"""The relay of a socket over a channel: both directions, their ends, and cuts."""

import asyncio

import pytest

from corral.client.stream import StreamLost
from corral.node.machine.migration.channel import relay
from corral.node.machine.migration.targets import stream_pair


class End:
    """One end of a channel; ``other`` is the opposite one."""

    def __init__(self):
        self.messages = asyncio.Queue()
        self.other = None

    async def send(self, data):
        if self.other is None:
            raise StreamLost("cut")
        self.other.messages.put_nowait(data)

    async def __aiter__(self):
        while (message := await self.messages.get()) is not None:
            yield message
        raise StreamLost("cut")

    def cut(self):
        other, self.other = self.other, None
        self.messages.put_nowait(None)
        if other is not None and other.other is not None:
            other.cut()


@pytest.fixture
async def relayed():
    """Two sockets with a relay between them, and the two ends of the channel."""
    one, other = End(), End()
    one.other, other.other = other, one
    (ours, near), (far, theirs) = stream_pair(), stream_pair()

    async def run(end, line):
        with line:
            await relay(end, line)

    tasks = [asyncio.ensure_future(run(one, near)), asyncio.ensure_future(run(other, far))]
    yield ours, theirs, one, tasks
    ours.close()
    theirs.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)


async def read(line, size):
    loop, content = asyncio.get_running_loop(), b""
    async with asyncio.timeout(60):
        while len(content) < size and (part := await loop.sock_recv(line, 1 << 20)):
            content += part
    return content


async def test_bytes_arrive_in_both_directions(relayed):
    ours, theirs, _, _ = relayed
    loop, content = asyncio.get_running_loop(), bytes(range(256)) * 8192
    sending = asyncio.ensure_future(loop.sock_sendall(ours, content))
    assert await read(theirs, len(content)) == content
    await sending
    await loop.sock_sendall(theirs, b"back")
    assert await read(ours, 4) == b"back"


async def test_a_direction_ends_by_itself(relayed):
    ours, theirs, _, _ = relayed
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(ours, b"all")
    ours.shutdown(1)
    assert await read(theirs, 100) == b"all"
    await loop.sock_sendall(theirs, b"answer")
    assert await read(ours, 6) == b"answer"


async def test_a_cut_ends_both_sockets(relayed):
    ours, theirs, end, tasks = relayed
    end.cut()
    assert await read(ours, 1) == b""
    assert await read(theirs, 1) == b""
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
