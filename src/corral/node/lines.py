"""Open lines into guests: byte streams, and datagrams (``corral.node.hypervisor.Line``)."""

import asyncio
import socket
from contextlib import suppress

CHUNK = 64 * 1024
LINGER_SECONDS = 10.0


class StreamLine:
    """A stream socket.  What is sent is held back while the other side does not read it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket) -> "StreamLine":
        """Over a unix socket that is connected, and theirs from then on."""
        return cls(*await asyncio.open_unix_connection(sock=connected, limit=CHUNK))

    async def read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the line is closed, or was ended by us."""
        try:
            self._writer.write(data)
        except RuntimeError as error:
            raise ConnectionError("nothing more may be sent") from error
        await self._writer.drain()

    def end(self) -> None:
        """Tell the other side that nothing more will be sent; it may still answer."""
        with suppress(OSError, RuntimeError):  # it has gone meanwhile
            self._writer.write_eof()

    def close(self) -> None:
        """What has been written still goes out, to a side that takes it soon."""
        self._writer.close()
        if self._writer.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._writer.transport.abort)


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
