"""``kubectl port-forward``: many connections into one pod, over one websocket.

kubectl since 1.31 sends SPDY/3 inside of binary messages (subprotocol
``SPDY/3.1+portforward.k8s.io``); what earlier ones send without is shown as such by the server.
For each connection it opens two streams that name a port and a number of their own
(``requestid``): one for data, one on which it reads what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Background, until
from corral.api.addresses import port_of
from corral.node import spdy, websockets
from corral.node.hypervisor import GuestError
from corral.node.lines import StreamLine
from corral.node.spdy import Data, Frame, Opened, Ping, Reset, SpdyError

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = "v4.channel.k8s.io"
MOST_PORTS = 64
"""Ports that one client may name who uses channels."""
MOST_STREAMS = 1024
"""Streams that one websocket may have open; the others are refused."""
_PIECES = 16
"""What a connection holds of its client's data while the guest does not read: pieces of a message.
The client's other connections wait then, since SPDY's flow control is not in use."""

Open = Callable[[int], Awaitable[StreamLine]]
"""Connects to a port; raises GuestError."""


@dataclass(slots=True)
class _Connection:
    """One connection: its two streams, as far as they are open, and what is to be sent."""

    number: str
    port: int
    streams: dict[str, int] = field(default_factory=dict)
    pieces: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_PIECES))
    said_all: bool = False
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    fault: str = ""

    @property
    def data(self) -> int:
        return self.streams.get("data", 0)

    @property
    def error(self) -> int:
        return self.streams.get("error", 0)

    @property
    def complete(self) -> bool:
        return len(self.streams) == 2

    async def take(self, piece: bytes) -> None:
        """The client sent something, or nothing more: empty."""
        if self.said_all or self.given_up.is_set():
            return
        self.said_all = not piece
        try:
            async with asyncio.timeout(websockets.STALLED_SECONDS):
                await self.pieces.put(piece)
        except TimeoutError:
            self.fault = f"port {self.port} takes nothing any more"
            self.end()

    def end(self) -> None:
        """Nobody takes pieces any more; whoever waits for room for one may go on."""
        self.given_up.set()
        while not self.pieces.empty():
            self.pieces.get_nowait()


class PortForward:
    """One client of one pod; ``whom`` is the pod in words."""

    def __init__(self, websocket: WebSocket, connect: Open, whom: str) -> None:
        self._websocket = websocket
        self._connect = connect
        self._whom = whom
        self._writer = spdy.Writer()
        self._connections: dict[str, _Connection] = {}
        self._streams: dict[int, _Connection] = {}

    async def serve(self) -> None:
        """Until the client leaves, or says what makes no sense."""
        await self._websocket.accept(subprotocol=PROTOCOL)
        async with Background() as tasks:
            with suppress(SpdyError):
                await self._read(tasks)
        await websockets.hang_up(self._websocket)

    async def _read(self, tasks: Background) -> None:
        reader = spdy.Reader()
        while (message := await websockets.received(self._websocket)) is not None:
            for frame in reader.feed(message):
                await self._take(frame, tasks)

    async def _take(self, frame: Frame, tasks: Background) -> None:
        if isinstance(frame, Ping):
            await self._send(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            await self._open(frame, tasks)
        elif (connection := self._streams.get(frame.stream)) is not None:
            if isinstance(frame, Reset):
                self._forget(connection)
            elif frame.stream == connection.data:
                await self._pass_on(connection, frame)

    async def _pass_on(self, connection: _Connection, frame: Data) -> None:
        if not connection.complete:  # nobody would take it
            self._forget(connection)
            await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        if frame.data:
            await connection.take(frame.data)
        if frame.last:
            await connection.take(b"")

    async def _open(self, frame: Opened, tasks: Background) -> None:
        kind, port = frame.headers.get("streamtype", ""), port_of(frame.headers.get("port", ""))
        number = frame.headers.get("requestid", "")
        connection = self._connections.get(number) or _Connection(number, port)
        if not port or kind not in ("data", "error") or kind in connection.streams:
            await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        if len(self._streams) >= MOST_STREAMS:
            await self._send(spdy.reset(frame.stream, spdy.REFUSED_STREAM))
            return
        connection.streams[kind] = frame.stream
        self._connections[number] = self._streams[frame.stream] = connection
        await self._send(self._writer.reply(frame.stream))
        if connection.complete:
            tasks.start(self._serve(connection), name=f"port {port}")

    def _forget(self, connection: _Connection) -> None:
        """End a connection, whoever wishes so."""
        connection.end()
        if self._connections.get(connection.number) is connection:
            del self._connections[connection.number]
        for stream in connection.streams.values():
            self._streams.pop(stream, None)

    async def _serve(self, connection: _Connection) -> None:
        """One connection, from its beginning to its end, which the client is told in any case."""
        try:
            send = partial(self._send_data, connection.data)
            carrying = _carry(connection, self._connect, self._whom, send)
            await until(connection.given_up, carrying)
            await self._send(spdy.data(connection.error, connection.fault.encode(), last=True))
            await self._send(spdy.data(connection.data, b"", last=True))
        finally:
            self._forget(connection)

    async def _send_data(self, stream: int, content: bytes) -> None:
        await self._send(spdy.data(stream, content))

    async def _send(self, frame: bytes) -> None:
        await _send(self._websocket, frame)


class PortChannels:
    """The same for clients that are no kubectl: a fixed set of ports, a connection to each.

    The first byte of a message is its channel: an even one for each port's data, the odd one behind
    it for what went wrong; the first message on each is the port's number (v4.channel.k8s.io).
    """

    def __init__(
        self, websocket: WebSocket, connect: Open, whom: str, ports: Sequence[int]
    ) -> None:
        self._websocket = websocket
        self._connect = connect
        self._whom = whom
        self._connections = [_Connection(str(port), port) for port in ports]

    async def serve(self) -> None:
        """Until the client leaves, or the guest has closed every connection."""
        await self._websocket.accept(subprotocol=CHANNELS)
        async with Background() as tasks:
            read = tasks.start(self._read(), name="client")
            guest = tasks.start(self._serve_all(), name="guest")
            await asyncio.wait({read, guest}, return_when=asyncio.FIRST_COMPLETED)
        await websockets.hang_up(self._websocket)

    async def _read(self) -> None:
        while (message := await websockets.received(self._websocket)) is not None:
            number, odd = divmod(message[0], 2)
            if not odd and number < len(self._connections) and len(message) > 1:
                await self._connections[number].take(message[1:])

    async def _serve_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, connection in enumerate(self._connections):
                group.create_task(self._serve(2 * number, connection))

    async def _serve(self, channel: int, connection: _Connection) -> None:
        for each in (channel, channel + 1):
            await self._send(each, connection.port.to_bytes(2, "little"))
        send = partial(self._send, channel)
        carrying = _carry(connection, self._connect, self._whom, send)
        await until(connection.given_up, carrying)
        connection.end()
        if connection.fault:
            await self._send(channel + 1, connection.fault.encode())

    async def _send(self, channel: int, content: bytes) -> None:
        await _send(self._websocket, bytes([channel]) + content)


async def _carry(
    connection: _Connection,
    connect: Open,
    whom: str,
    send: Callable[[bytes], Coroutine[None, None, None]],
) -> None:
    """Until the guest closes; ``connection.fault`` becomes what went wrong."""
    try:
        line = await connect(connection.port)
    except GuestError as error:
        connection.fault = f"error forwarding port {connection.port} to {whom}: {error}"
        return
    try:
        async with Background() as tasks:
            tasks.start(_to_guest(connection, line), name="to guest")
            while content := await line.read():
                await send(content)
    finally:
        line.close()


async def _send(websocket: WebSocket, message: bytes) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):  # whoever reads sees that it has gone
        await websocket.send_bytes(message)


async def _to_guest(connection: _Connection, line: StreamLine) -> None:
    """What a guest that has closed does not take is lost, as on any connection."""
    while piece := await connection.pieces.get():
        with suppress(OSError):
            await line.write(piece)
    line.end()


def ports_of(names: Sequence[str]) -> list[int]:
    """The ports of a query (``ports=80&ports=81``, or ``80,81``).  Raises ValueError."""
    ports = [port_of(name) for text in names for name in text.split(",")]
    if not ports or len(ports) > MOST_PORTS or not all(ports):
        raise ValueError(f"ports: 1 to {MOST_PORTS} numbers from 1 to 65535 are to be named")
    return ports
