"""A connection between the hosts of two sides of a migration, and the relay of a socket over it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

from corral.aio import Background, Signal
from corral.client.stream import StreamLost

_READ_BYTES: Final = 256 << 10


class Channel(Protocol):
    """A connection that carries messages of bytes, as ``client.stream.Stream`` does."""

    async def send(self, data: bytes) -> None:
        """Raises StreamLost."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over messages until the other side closes.  Raises StreamLost if it does not."""


class Links(Protocol):
    """Requests to the nodes of other hosts, at MIGRATIONS_PATH; a query says what for.

    Both raise ApiError, and are for one request each.
    """

    def open(self, node: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[Channel]: ...

    def download(
        self, node: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]:
        """Yield the status, and the content as it comes."""


async def relay(channel: Channel, line: socket.socket) -> None:
    """Relay a socket over a channel, until both directions have ended or either side is lost.

    An empty message is the end of one direction: a websocket cannot be closed by half.  The caller
    closes both afterwards, which shows the other side that a stream was cut.
    """
    ended = Signal()
    async with Background() as tasks:
        lost = tasks.start(_inward(channel, line, ended), name="inward")
        whole = tasks.start(_outward(line, channel, ended), name="outward")
        await asyncio.wait({lost, whole}, return_when=asyncio.FIRST_COMPLETED)


async def _outward(line: socket.socket, channel: Channel, ended: Signal) -> None:
    """Send what is read from a socket; return once the other direction has ended, too, or lost."""
    loop = asyncio.get_running_loop()
    # The buffer is released here: the frame of a cancelled task waits for the garbage collector.
    with suppress(StreamLost, OSError), memoryview(bytearray(_READ_BYTES)) as buffer:
        while length := await loop.sock_recv_into(line, buffer):
            await channel.send(bytes(buffer[:length]))
        await channel.send(b"")
        await ended.wait()


async def _inward(channel: Channel, line: socket.socket, ended: Signal) -> None:
    """Write what is received to a socket, until the channel is closed or either is lost."""
    loop = asyncio.get_running_loop()
    with suppress(StreamLost, OSError):
        async for data in channel:
            if data:
                await loop.sock_sendall(line, data)
            else:
                line.shutdown(socket.SHUT_WR)
                ended.set()
