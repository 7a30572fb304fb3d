"""Port forwarding: local TCP and UDP ports, with a stream to the VMI for each client."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Final, cast

import click

from corral.aio import Background
from corral.api.errors import ApiError
from corral.cli.errors import Problem, cause_of, reason
from corral.cli.session import Session
from corral.cli.virtctl.target import Target
from corral.client.stream import Stream, StreamLost

IDLE_SECONDS: Final = 60.0
"""Idle timeout of a UDP client, and of a TCP connection whose client has closed its side."""

_CHUNK: Final = 65536
_MAX_QUEUED_DATAGRAMS: Final = 64
_MAX_CLIENTS: Final = 256
"""Concurrent UDP clients of one port: each costs a connection to the API server."""


@dataclass(frozen=True, slots=True)
class Port:
    """A forwarded port; protocol is ``tcp`` or ``udp``."""

    protocol: str
    local: int
    remote: int

    @property
    def subresource(self) -> str:
        return f"portforward/{self.remote}/{self.protocol}"


def ports_of(texts: Sequence[str]) -> list[Port]:
    """Parse ``[PROTOCOL/]LOCAL[:REMOTE]``.  Raises Problem."""
    return [_port(text) for text in texts]


def _port(text: str) -> Port:
    protocol, slash, rest = text.rpartition("/")
    protocol = protocol.lower() if slash else "tcp"
    if protocol not in ("tcp", "udp"):
        raise Problem(f"unknown protocol: {protocol}", "Write tcp/PORT or udp/PORT.")
    numbers = [part for part in rest.split(":") if part]
    if not numbers:
        raise Problem("invalid port, missing local and/or remote port", "Write LOCAL:REMOTE.")
    local, remote = (_number(text, part) for part in (numbers[0], numbers[-1]))
    if len(numbers) > 2 or not remote:
        raise Problem(f'invalid port "{text}"', "Write LOCAL:REMOTE; REMOTE is 1 to 65535.")
    return Port(protocol, local, remote)


def _number(text: str, part: str) -> int:
    if not (part.isascii() and part.isdecimal() and int(part) < 65536):
        raise Problem(f'invalid port "{text}": {part} is no port number')
    return int(part)


async def relay(
    stream: Stream,
    source: AsyncIterator[bytes],
    sink: Callable[[bytes], Awaitable[None]],
) -> None:
    """Copy bytes both ways until the VMI closes its side.

    If the source ends first, an empty message reports that to the server (KubeVirt ignores it);
    data from the VMI is copied on, until it is idle for ``IDLE_SECONDS``.
    Raises StreamLost, and OSError if the sink is closed.
    """
    received = asyncio.Event()

    async def send() -> None:
        async for data in source:
            await stream.send(data)
        await stream.send(b"")
        await stream.delivered()
        await _wait_idle(received)

    async def receive() -> None:
        async for data in stream:
            received.set()
            await sink(data)

    async with Background() as background:
        ends = {
            background.start(send(), name="to the machine"),
            background.start(receive(), name="from the machine"),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@dataclass(slots=True)
class Forwarder:
    """Listens for clients; an error of one is printed and does not affect the others."""

    session: Session
    target: Target
    background: Background
    opened: ExitStack

    async def listen(self, address: str, port: Port) -> int:
        """Open a local port and return its number.  Raises Problem."""
        try:
            if port.protocol == "udp":
                return await self._listen_udp(address, port)
            return await self._listen_tcp(address, port)
        except OSError as error:
            raise Problem(
                f"cannot listen on {port.protocol} {address}:{port.local}: {reason(error)}",
                "Choose another local port, LOCAL:REMOTE; 0 takes a free one.",
            ) from error

    async def _listen_tcp(self, address: str, port: Port) -> int:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.background.start(self._connection(bound, reader, writer), name="connection")

        bound = port
        server = await asyncio.start_server(connected, address, port.local)
        self.opened.callback(server.close)
        bound = replace(port, local=server.sockets[0].getsockname()[1])
        return bound.local

    async def _connection(
        self, port: Port, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            async with self.session.stream(self.target.path(port.subresource)) as stream:
                await relay(stream, _chunks(reader), write)
        except* (ApiError, StreamLost, OSError) as group:
            self._print(port, group)
            _reset(writer)
        finally:
            writer.close()

    async def _listen_udp(self, address: str, port: Port) -> int:
        loop = asyncio.get_running_loop()
        transport, clients = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self, port), local_addr=(address, port.local)
        )
        self.opened.callback(transport.close)
        clients.port = replace(port, local=transport.get_extra_info("sockname")[1])
        return clients.port.local

    async def client(
        self,
        port: Port,
        datagrams: asyncio.Queue[bytes],
        reply: Callable[[bytes], None],
    ) -> None:
        """Serve one UDP client, until both sides are idle."""
        try:
            async with self.session.stream(self.target.path(port.subresource)) as stream:
                await _exchange(stream, datagrams, reply)
        except* (ApiError, StreamLost, OSError) as group:
            self._print(port, group)

    def _print(self, port: Port, group: ExceptionGroup[Exception]) -> None:
        error = cause_of(group)
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            return  # the client has closed the connection
        click.echo(f"error handling connection for {port.local}: {error}", err=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, so that the client does not take it for a complete response."""
    connected = writer.get_extra_info("socket")
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _wait_idle(active: asyncio.Event) -> None:
    """Wait until an event was not set for ``IDLE_SECONDS``."""
    with suppress(TimeoutError):
        while True:
            active.clear()
            async with asyncio.timeout(IDLE_SECONDS):
                await active.wait()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(_CHUNK):
        yield data


async def _exchange(
    stream: Stream, datagrams: asyncio.Queue[bytes], reply: Callable[[bytes], None]
) -> None:
    active = asyncio.Event()

    async def send() -> None:
        while True:
            data = await datagrams.get()
            active.set()
            await stream.send(data)

    async def receive() -> None:
        async for data in stream:
            active.set()
            reply(data)

    async with Background() as background:
        ends = {
            background.start(send(), name="to the machine"),
            background.start(receive(), name="from the machine"),
            background.start(_wait_idle(active), name="idle"),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@dataclass(slots=True)
class _Datagrams(asyncio.DatagramProtocol):
    """A local UDP port, with a stream for each client address."""

    forwarder: Forwarder
    port: Port
    clients: dict[object, asyncio.Queue[bytes]] = field(default_factory=dict)
    transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[object, ...]) -> None:
        queue = self.clients.get(addr)
        if queue is None:
            if len(self.clients) >= _MAX_CLIENTS:
                return
            queue = self.clients[addr] = asyncio.Queue(_MAX_QUEUED_DATAGRAMS)
            self.forwarder.background.start(self._client(addr, queue), name="client")
        if not queue.full():
            queue.put_nowait(data)

    async def _client(self, addr: tuple[object, ...], queue: asyncio.Queue[bytes]) -> None:
        assert self.transport is not None
        transport = self.transport
        try:
            await self.forwarder.client(self.port, queue, lambda data: transport.sendto(data, addr))
        finally:
            del self.clients[addr]
