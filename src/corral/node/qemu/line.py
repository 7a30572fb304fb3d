"""A line to a guest's serial port: the socket that QEMU gives to one client at a time."""

import asyncio
import socket

CHUNK = 64 * 1024


class Line:
    """An open line.  What is typed is held back while the guest does not read it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, connected: socket.socket) -> "Line":
        return cls(*await asyncio.open_unix_connection(sock=connected, limit=CHUNK))

    async def read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK)
        except ConnectionError:
            return b""

    async def write(self, typed: bytes) -> None:
        """Type something.  Raises ConnectionError when the line is closed."""
        self._writer.write(typed)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
