"""Connections to local ports, each carried to a machine by a stream of its own."""

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

SILENCE_SECONDS: Final = 60.0
"""How long a client's UDP port is remembered after the last datagram, and how long a machine may be
silent towards a client that has said all it had to say."""

_CHUNK: Final = 65536
_WAITING_DATAGRAMS: Final = 64
_MOST_CLIENTS: Final = 256
"""UDP clients of one port at a time: each holds a connection to the API server."""


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
    """Read ``[PROTOCOL/]LOCAL[:REMOTE]``.  Raises Problem."""
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
    """Carry bytes both ways until the machine has said all.

    Where the source ends first, an empty message tells the server (KubeVirt's does not mind it);
    what the machine still answers is carried on, for as long as it does not fall silent.
    Raises StreamLost, and OSError when nobody takes what comes.
    """
    heard = asyncio.Event()

    async def send() -> None:
        async for data in source:
            await stream.send(data)
        await stream.send(b"")
        await stream.delivered()
        await _silence(heard)

    async def receive() -> None:
        async for data in stream:
            heard.set()
            await sink(data)

    async with Background() as background:
        ends = {
            background.start(send(), name="to the machine"),
            background.start(receive(), name="from the machine"),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@dataclass(slots=True)
class Forwarder:
    """Listens for clients; what goes wrong with one of them is told, and harms no other."""

    session: Session
    target: Target
    background: Background
    opened: ExitStack

    async def listen(self, address: str, port: Port) -> int:
        """Open a local port; answers its number.  Raises Problem."""
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
        async def take(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            async with self.session.stream(self.target.path(port.subresource)) as stream:
                await relay(stream, _chunks(reader), take)
        except* (ApiError, StreamLost, OSError) as group:
            self._tell(port, group)
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
        answer: Callable[[bytes], None],
    ) -> None:
        """Serve one UDP client, until both sides are silent."""
        try:
            async with self.session.stream(self.target.path(port.subresource)) as stream:
                await _exchange(stream, datagrams, answer)
        except* (ApiError, StreamLost, OSError) as group:
            self._tell(port, group)

    def _tell(self, port: Port, group: ExceptionGroup[Exception]) -> None:
        error = cause_of(group)
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            return  # the client went away: it knows
        click.echo(f"error handling connection for {port.local}: {error}", err=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the client does not take it for a whole answer."""
    connected = writer.get_extra_info("socket")
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _silence(active: asyncio.Event) -> None:
    """Wait until an event that is set again and again no longer is."""
    with suppress(TimeoutError):
        while True:
            active.clear()
            async with asyncio.timeout(SILENCE_SECONDS):
                await active.wait()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(_CHUNK):
        yield data


async def _exchange(
    stream: Stream, datagrams: asyncio.Queue[bytes], answer: Callable[[bytes], None]
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
            answer(data)

    async with Background() as background:
        ends = {
            background.start(send(), name="to the machine"),
            background.start(receive(), name="from the machine"),
            background.start(_silence(active), name="silence"),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@dataclass(slots=True)
class _Datagrams(asyncio.DatagramProtocol):
    """A local UDP port: each client, by its address, has a stream of its own."""

    forwarder: Forwarder
    port: Port
    clients: dict[object, asyncio.Queue[bytes]] = field(default_factory=dict)
    transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[object, ...]) -> None:
        queue = self.clients.get(addr)
        if queue is None:
            if len(self.clients) >= _MOST_CLIENTS:
                return
            queue = self.clients[addr] = asyncio.Queue(_WAITING_DATAGRAMS)
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
