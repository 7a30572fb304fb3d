"""Byte streams and datagrams between clients and guests."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Protocol

from corral import sockets

CHUNK = 64 * 1024
STALLED_SECONDS = 60.0
"""Time in which the peer reads nothing before a write fails."""
LINGER_SECONDS = 10.0
"""Longest time for the peer to read after the last write, and to close the connection."""
_PAUSED_SECONDS = 3600
"""TCP keepalive: paused guests answer nothing for as long as they are paused, and keep theirs."""
_UNIX_PIECE = 4096
"""The kernel frees the buffer of a unix socket by whole writes, and a serial port reads byte by
byte: with small pieces progress shows before a whole chunk is read."""


class Line(Protocol):
    """An open stream to a guest: its serial console, its screen, or a port."""

    async def read(self) -> bytes:
        """Return the next bytes from the guest; empty once the line is closed."""

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the line is closed."""

    def close(self) -> None: ...


class StreamLine:
    """A line over a connected stream socket, which it owns from then on.

    Nothing is buffered here, only in the kernel.  So a peer that stops reading loses nothing that
    it has sent before, a client that does not read slows its guest down, and what was written is
    still sent after the line is closed.
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
        """Return the next bytes; empty at the end, and when the connection breaks."""
        await asyncio.sleep(0)  # sock_recv does not yield while data is there
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Hand all data to the kernel.

        Raises ConnectionError when the line is closed, or was ended by us, and TimeoutError when
        the peer has read nothing for STALLED_SECONDS.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest[: self._most]) :]
            except BlockingIOError:
                await self._room()

    async def _room(self) -> None:
        """Wait until the socket is writable, for as long as the peer reads anything at all.

        A socket is writable again only when a good part of its buffer is free, which may take
        minutes with a slow peer.
        """
        loop, descriptor = asyncio.get_running_loop(), self._socket.fileno()
        left, room = sockets.unacknowledged(self._socket), asyncio.Event()
        loop.add_writer(descriptor, room.set)
        try:
            while not room.is_set():
                try:
                    async with asyncio.timeout(STALLED_SECONDS):
                        await room.wait()
                except TimeoutError:
                    before, left = left, sockets.unacknowledged(self._socket)
                    if left >= before:
                        raise
        finally:
            loop.remove_writer(descriptor)

    def end(self) -> None:
        """Shut the sending side down; the peer may still answer."""
        with suppress(OSError):  # the peer has closed meanwhile
            self._socket.shutdown(socket.SHUT_WR)

    async def finish(self) -> None:
        """Shut the sending side down, and wait while the peer still reads.

        Answers are read and dropped: a socket that is closed with unread data is reset, and the
        peer loses what was sent to it.
        """
        self.end()
        left = sockets.unacknowledged(self._socket)
        while True:
            try:
                async with asyncio.timeout(LINGER_SECONDS):
                    while await self.read():
                        pass
            except TimeoutError:
                before, left = left, sockets.unacknowledged(self._socket)
                if left < before:
                    continue
            return

    def close(self) -> None:
        """Close the line; written data is still sent, unless received data was left unread."""
        self._socket.close()


class SecureLine:
    """A line inside of TLS, for one request and its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket, tls: ssl.SSLContext) -> "SecureLine":
        """Start TLS over a connected socket, which the line owns from then on.  Raises OSError."""
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
    """A line over a connected datagram socket: each piece is one datagram, both ways."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def read(self) -> bytes:
        """Return the next datagram that is not empty; empty when the line is closed.

        ECONNREFUSED reports that nobody listened when an earlier datagram arrived; somebody may
        listen by now.
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
