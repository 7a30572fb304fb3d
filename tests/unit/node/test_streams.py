"""Lines into guests lose nothing: not by a slow side, nor by one that has closed."""

import asyncio
import random
import socket
import struct

import pytest

from corral.node import streams
from corral.node.streams import StreamLine

MUCH = random.Random(1).randbytes(4 << 20)


@pytest.fixture
def pair():
    """A line, and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    line = StreamLine(ours)
    with theirs:
        yield line, theirs
    line.close()


@pytest.fixture
def connection():
    """The same over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setblocking(False)
    line = StreamLine(ours)
    with theirs:
        yield line, theirs
    line.close()


async def all_of(theirs, piece=1 << 16):
    """What comes to the end, read in small pieces."""
    found = bytearray()
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(theirs, piece):
        found += data
    return bytes(found)


async def all_said(line):
    found = b""
    while data := await line.read():
        found += data
    return found


@pytest.mark.parametrize("ends", ["pair", "connection"])
async def test_data_written_before_the_end_arrives(request, ends):
    line, theirs = request.getfixturevalue(ends)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        found = tasks.create_task(all_of(theirs, 5000))
        await line.write(MUCH)
        line.end()
    assert found.result() == MUCH


async def test_buffered_data_arrives_after_a_close(pair):
    line, theirs = pair
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await line.write(MUCH)  # as much as goes in
    line.close()
    found = await all_of(theirs)
    assert found == MUCH[: len(found)]
    assert len(found) > 50_000


@pytest.mark.looptime
async def test_a_slow_reader_is_awaited(pair):
    line, theirs = pair
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(line.write(MUCH))
        found = b""
        while len(found) < len(MUCH):
            await asyncio.sleep(streams.STALLED_SECONDS * 0.8)
            found += theirs.recv(20_000)
        await writing
    assert found == MUCH


@pytest.mark.looptime
async def test_a_stalled_reader_times_out(pair, looptime):
    line, _ = pair
    with pytest.raises(TimeoutError):
        await line.write(MUCH)
    assert looptime == pytest.approx(streams.STALLED_SECONDS)


@pytest.mark.looptime
async def test_the_rest_can_be_read_slowly(pair):
    line, theirs = pair
    line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    written = MUCH[:150_000]
    await line.write(written)
    found = b""
    async with asyncio.TaskGroup() as tasks:
        finishing = tasks.create_task(line.finish())
        theirs.send(b"nobody hears that")
        while not finishing.done() and len(found) < len(written):
            await asyncio.sleep(streams.LINGER_SECONDS * 0.8)
            found += theirs.recv(20_000)
        theirs.close()
    assert found == written


@pytest.mark.looptime
async def test_a_peer_that_does_not_close_is_disconnected(pair, looptime):
    line, theirs = pair
    await line.write(b"bye")
    assert theirs.recv(10) == b"bye"
    await line.finish()
    assert looptime == pytest.approx(streams.LINGER_SECONDS)


async def test_data_of_a_peer_that_stops_reading_is_read(connection):
    """As from a server that refuses a request while it is still sent."""
    line, theirs = connection
    said = MUCH[:100_000]
    await asyncio.get_running_loop().sock_sendall(theirs, said)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(ConnectionError):
        await line.write(b"more")
    assert await all_said(line) == said


async def test_an_ended_stream_rejects_writes(pair):
    line, theirs = pair
    line.end()
    with pytest.raises(ConnectionError):
        await line.write(b"more")
    theirs.send(b"still heard")
    assert await line.read() == b"still heard"


async def test_an_unread_peer_is_paused(pair):
    line, theirs = pair
    assert theirs.send(MUCH) < len(MUCH)
    assert await line.read()


async def test_reading_yields_to_other_tasks(pair):
    line, theirs = pair
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(10):
        theirs.send(b"x")
        await line.read()
    task.cancel()
    assert turns >= 10
