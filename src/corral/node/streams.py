"""Open lines into guests: byte streams, and datagrams."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Protocol

from corral import sockets

CHUNK = 64 * 1024
STALLED_SECONDS = 60.0
"""How long the other side may take nothing of what it is sent before it is given up."""
LINGER_SECONDS = 10.0
"""The same once all is said, and how long it may then take to hang up."""
_PAUSED_SECONDS = 3600
"""How long a guest may be silent altogether: those that are paused keep their connections."""
_UNIX_PIECE = 4096
"""A unix socket tells of what was sent at once that it is taken when all of it is; a serial port
takes it byte by byte."""


class Line(Protocol):
    """One open line into a guest: to its serial console, its screen, or a port."""

    async def read(self) -> bytes:
        """What comes out of the guest next; empty when the line is closed."""

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the line is closed."""

    def close(self) -> None: ...


class StreamLine:
    """A connected stream socket, which is the line's from then on.

    What is under way is in the kernel only.  So a side that takes nothing more takes nothing away
    from what it has said before, who does not read is not read from, and what was written goes out
    after the line is closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)  # noqa: FBT003
        sockets.keep_alive(connected, _PAUSED_SECONDS)
        self._most = CHUNK
        if connected.family == socket.AF_UNIX:
            self._most = _UNIX_PIECE
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected

    async def read(self) -> bytes:
        """What comes next; empty at the end, and where the connection broke."""
        await asyncio.sleep(0)  # what is there is read without waiting, and others are to live
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Hand all of it to the kernel.

        Raises ConnectionError when the line is closed, or was ended by us, and TimeoutError when
        the other side has taken nothing for STALLED_SECONDS.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest[: self._most]) :]
            except BlockingIOError:
                await self._room()

    async def _room(self) -> None:
        """Wait until more can be written, for as long as what was written goes out.

        A socket has room again when a good part of what it held is gone, which a slow side may need
        minutes for.
        """
        loop, descriptor = asyncio.get_running_loop(), self._socket.fileno()
        left, room = sockets.untaken(self._socket), asyncio.Event()
        loop.add_writer(descriptor, room.set)
        try:
            while not room.is_set():
                try:
                    async with asyncio.timeout(STALLED_SECONDS):
                        await room.wait()
                except TimeoutError:
                    before, left = left, sockets.untaken(self._socket)
                    if left >= before:
                        raise
        finally:
            loop.remove_writer(descriptor)

    def end(self) -> None:
        """Tell the other side that nothing more will be sent; it may still answer."""
        with suppress(OSError):  # it has gone meanwhile
            self._socket.shutdown(socket.SHUT_WR)

    async def finish(self) -> None:
        """Say that this was all, and let the other side take it, for as long as it does.

        What it answers goes nowhere, but it is read: a connection that is closed with something
        unread in it is reset, and takes back what was sent.
        """
        self.end()
        left = sockets.untaken(self._socket)
        while True:
            try:
                async with asyncio.timeout(LINGER_SECONDS):
                    while await self.read():
                        pass
            except TimeoutError:
                before, left = left, sockets.untaken(self._socket)
                if left < before:
                    continue
            return

    def close(self) -> None:
        """What has been written still goes out, unless something was left unread."""
        self._socket.close()


class SecureLine:
    """A stream inside of TLS, for a question and its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket, tls: ssl.SSLContext) -> "SecureLine":
        """Over a socket that is connected, and theirs from then on.  Raises OSError."""
        reader, writer = await asyncio.open_connection(sock=connected)
        try:
            await writer.start_tls(tls)
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer)

    async def read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the line is closed."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class DatagramLine:
    """A datagram socket that is connected: each piece is one datagram, both ways."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def read(self) -> bytes:
        """The next datagram that is not empty; empty when the line is closed, or leads nowhere.

        A port that nobody listens on says so in answer to what was sent (ECONNREFUSED), and may
        have a listener the next time.
        """
        loop = asyncio.get_running_loop()
        while self._socket.fileno() >= 0:
            try:
                if datagram := await loop.sock_recv(self._socket, CHUNK):
                    return datagram
            except ConnectionRefusedError:
                continue
            except OSError:
                break
        return b""

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionRefusedError):
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def close(self) -> None:
        self._socket.close()
