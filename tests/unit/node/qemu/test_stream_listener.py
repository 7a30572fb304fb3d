"""A socket that one QEMU connects to: whom it accepts, and what it relays."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import tracemalloc
from contextlib import asynccontextmanager, suppress

import pytest

from corral.node.hypervisor import GuestError
from corral.node.qemu.stream_listener import StreamListener

STRANGER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connected:
    connected.connect("\\0" + sys.argv[1])
    print(connected.recv(1))
"""


@pytest.fixture
def remote():
    """Both ends of the stream that a connection is relayed to."""
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def listener_to(stream):
    async def open_():
        return stream

    return await StreamListener.create(os.getpid(), open_)


def name_of(listener):
    return listener.address["path"]


async def connected(listener):
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, f"\0{name_of(listener)}")
    return connection


@asynccontextmanager
async def relayed(listener):
    running = asyncio.create_task(listener.run())
    with await connected(listener) as connection:
        yield connection, running
    async with asyncio.timeout(60):
        await running


async def test_both_directions_are_relayed_until_both_ends_are_closed(remote):
    loop, (ours, theirs) = asyncio.get_running_loop(), remote
    async with relayed(await listener_to(ours)) as (connection, running):
        await loop.sock_sendall(connection, b"x" * 300_000)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := await loop.sock_recv(theirs, 1 << 16):
            received += part
        assert received == b"x" * 300_000
        assert not running.done()
        await loop.sock_sendall(theirs, b"answer")
        assert await loop.sock_recv(connection, 16) == b"answer"
        theirs.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(connection, 16) == b""


@pytest.fixture
def uncollected():
    """A garbage collector that does not run, and a count of allocated bytes."""
    gc.disable()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.enable()


async def test_a_cancelled_relay_frees_its_buffers_at_once(uncollected):
    loop, before = asyncio.get_running_loop(), None
    for _ in range(5):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with theirs:
            listener = await listener_to(ours)
            running = asyncio.create_task(listener.run())
            with await connected(listener) as connection:
                await loop.sock_sendall(connection, b"x")
                assert await loop.sock_recv(theirs, 1) == b"x"
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
        before = uncollected() if before is None else before
    assert uncollected() - before < 200_000


async def test_the_address_is_an_abstract_socket_that_is_used_once(remote):
    listener = await listener_to(remote[0])
    address = listener.address
    assert (address["type"], address["abstract"]) == ("unix", True)
    async with relayed(listener):
        for _ in range(100):  # until the listener has accepted, and closed its socket
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await connected(listener)
        remote[1].shutdown(socket.SHUT_WR)


async def test_another_process_is_refused_and_the_expected_one_still_accepted(remote):
    listener = await listener_to(remote[0])
    running = asyncio.create_task(listener.run())
    command = [sys.executable, "-c", STRANGER, name_of(listener)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"b''\n"), done.stderr
    with await connected(listener) as connection:
        await asyncio.get_running_loop().sock_sendall(connection, b"mine")
        assert await asyncio.get_running_loop().sock_recv(remote[1], 16) == b"mine"
    remote[1].shutdown(socket.SHUT_WR)
    async with asyncio.timeout(60):
        await running


async def test_a_stream_that_cannot_be_opened_fails_the_relay():
    async def open_():
        raise GuestError("the target has no disk root")

    listener = await StreamListener.create(os.getpid(), open_)
    running = asyncio.create_task(listener.run())
    with await connected(listener) as connection:
        with pytest.raises(GuestError, match="the target has no disk root"):
            await running
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""


async def test_a_stream_that_the_target_cuts_fails_the_relay_with_its_error(remote):
    ours, theirs = remote
    running = asyncio.create_task((listener := await listener_to(ours)).run())
    with await connected(listener) as connection:
        await asyncio.get_running_loop().sock_sendall(connection, b"a write")
        theirs.close()  # as a target does that ends: there is something that it has not read
        with pytest.raises(OSError, match=r"Connection reset|Broken pipe"):
            await running


async def test_a_process_that_ends_in_a_transfer_fails_the_relay_with_its_error(remote):
    ours, theirs = remote
    running = asyncio.create_task((listener := await listener_to(ours)).run())
    loop = asyncio.get_running_loop()
    with await connected(listener):
        await loop.sock_sendall(theirs, b"an answer")
    with suppress(OSError):  # the relay has ended
        while not running.done():
            await loop.sock_sendall(theirs, b"another answer")
    with pytest.raises(OSError, match=r"Connection reset|Broken pipe"):
        await running


@pytest.fixture
def ended():
    """The pid of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


async def test_a_process_that_has_ended_has_no_namespace_to_listen_in(ended):
    with pytest.raises(FileNotFoundError):
        await StreamListener.create(ended, None)
