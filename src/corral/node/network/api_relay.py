"""Relays connections of machines to the API server of another host.

The Service ``kubernetes`` leads machines to their gateway; TLS goes through untouched.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

CONNECT_SECONDS: Final = 10.0
CHUNK_BYTES: Final = 64 << 10


@asynccontextmanager
async def relay(bound: socket.socket, host: str, port: int) -> AsyncGenerator[None, None]:
    """Accept connections at a bound socket and carry each to ``host:port``, in the block."""
    connections: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await _connect(reader, writer, host, port)
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(accepted, sock=bound, limit=CHUNK_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
    except OSError:
        return  # the machine sees its connection end, as with an API server that is away
    try:
        await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))
    finally:
        inner_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
