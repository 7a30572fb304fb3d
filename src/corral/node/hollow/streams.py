"""The ways into hollow machines: lines that echo what they are sent."""

import asyncio
import socket

from corral.node.streams import StreamLine


async def echo(greeting: bytes) -> StreamLine:
    """A line to who greets, and says then what it is told."""
    return StreamLine(await _other_end(_Echo(greeting)))


class Echoes:
    """The way to hollow machines: each port echoes what it is sent, or grants it if it is HTTP."""

    async def connect(
        self,
        address: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
    ) -> socket.socket:
        return await _other_end(_Web())

    async def socket(self, family: int, kind: int) -> socket.socket:
        raise OSError(f"hollow machines take no datagrams: {family}, {kind}")


class _Echo(asyncio.Protocol):
    """The guest's side of a connection: says something, then what it is told."""

    def __init__(self, greeting: bytes = b"") -> None:
        self._greeting = greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()


class _Web(_Echo):
    """The same, but who asks for something is granted it."""

    def data_received(self, data: bytes) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        super().data_received(answer if data.startswith(b"GET ") else data)


async def _other_end(protocol: asyncio.Protocol) -> socket.socket:
    """A connection to who speaks so."""
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=theirs)
    return ours
