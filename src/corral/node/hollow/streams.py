"""Streams to hollow machines, which echo what they receive."""

import asyncio
import socket

from corral.node.streams import StreamLine


async def echo(greeting: bytes) -> StreamLine:
    """Return a line to a peer that sends a greeting, then echoes."""
    return StreamLine(await _other_end(_Echo(greeting)))


class EchoNetwork:
    """The network of hollow machines: each port echoes, or replies 200 to an HTTP GET."""

    async def connect(
        self,
        address: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
    ) -> socket.socket:
        return await _other_end(_HttpEcho())

    async def socket(self, family: int, kind: int) -> socket.socket:
        raise OSError(f"hollow machines accept no datagrams: {family}, {kind}")


class _Echo(asyncio.Protocol):
    """The guest's end of a connection: sends a greeting, then echoes."""

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


class _HttpEcho(_Echo):
    """The guest's end of a connection that may speak HTTP."""

    def data_received(self, data: bytes) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        super().data_received(answer if data.startswith(b"GET ") else data)


async def _other_end(protocol: asyncio.Protocol) -> socket.socket:
    """Return a connected socket whose other end has this protocol."""
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=theirs)
    return ours
