"""``kubectl port-forward``: many connections into one pod, over one websocket.

kubectl since 1.31 sends SPDY/3 inside of binary messages (subprotocol
``SPDY/3.1+portforward.k8s.io``); what earlier ones send without is shown as such by the server.
For each connection it opens two streams that name a port and a number of their own
(``requestid``): one for data, one on which it reads what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Background
from corral.api.addresses import port_of
from corral.node.hypervisor import GuestError
from corral.node.kubelet import spdy, websockets
from corral.node.kubelet.spdy import Data, Frame, Opened, Ping, Reset, SpdyError
from corral.node.streams import StreamLine

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = "v4.channel.k8s.io"
MOST_PORTS = 64
"""Ports that one client may name who uses channels."""
MOST_STREAMS = 1024
"""Streams that one websocket may have open; the others are refused."""
AFTERWARDS_SECONDS = 10.0
"""How long the guest may take for what is still its own when the client has left."""
MOST_WAITING_BYTES = 512 << 10
"""What a connection holds of its client's data while the guest does not read: less than that, and
one message.  The client's other connections wait then, since SPDY's flow control is not in use."""
_PIECE_BYTES = 64
"""What a piece takes besides its content."""

Open = Callable[[int], Awaitable[StreamLine]]
"""Connects to a port; raises GuestError."""


@dataclass(slots=True)
class _Connection:
    """One connection: its two streams, as far as they are open, and what is to be sent."""

    number: str
    port: int
    streams: dict[str, int] = field(default_factory=dict)
    pieces: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    waiting: int = 0
    """Bytes that the guest has not taken."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    said_all: bool = False
    is_given_up: bool = False
    """The client does not care for what the guest has not taken."""
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    """What the guest says is not."""
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """The client knows that it is over."""
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
        if self.said_all:
            return
        self.said_all = not piece
        self.pieces.put_nowait(piece)
        self.waiting += len(piece) + _PIECE_BYTES
        while self.waiting >= MOST_WAITING_BYTES and not self.unwanted.is_set():
            self.room.clear()
            await self.room.wait()

    def taken(self, piece: bytes) -> None:
        """The guest has taken something, or never will."""
        self.waiting -= len(piece) + _PIECE_BYTES
        self.room.set()

    def leave(self) -> None:
        """The client has gone, or as good as.  What it has sent before is still the guest's."""
        self.unwanted.set()
        self.room.set()  # who waits for it need not any more
        if not self.said_all:
            self.said_all = True
            self.pieces.put_nowait(b"")


class PortForward:
    """One client of one pod; ``whom`` is the pod in words."""

    def __init__(self, websocket: WebSocket, connect: Open, whom: str) -> None:
        self._websocket = websocket
        self._connect = connect
        self._whom = whom
        self._writer = spdy.Writer()
        self._connections: dict[str, _Connection] = {}
        self._streams: dict[int, _Connection] = {}
        self._open_streams = 0
        """With those that are forgotten while what was sent on them is still carried."""

    async def serve(self) -> None:
        """Until the client leaves, or says what makes no sense."""
        await self._websocket.accept(subprotocol=PROTOCOL)
        async with asyncio.TaskGroup() as tasks:
            with suppress(SpdyError):
                await self._read(tasks)
            await websockets.hang_up(self._websocket)
            for connection in list(self._connections.values()):
                connection.leave()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        reader = spdy.Reader()
        while (message := await websockets.received(self._websocket)) is not None:
            for frame in reader.feed(message):
                await self._take(frame, tasks)

    async def _take(self, frame: Frame, tasks: asyncio.TaskGroup) -> None:
        if isinstance(frame, Ping):
            await self._send(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            await self._open(frame, tasks)
        elif (connection := self._streams.get(frame.stream)) is not None:
            if isinstance(frame, Reset):
                connection.is_given_up = True
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

    async def _open(self, frame: Opened, tasks: asyncio.TaskGroup) -> None:
        kind, port = frame.headers.get("streamtype", ""), port_of(frame.headers.get("port", ""))
        number = frame.headers.get("requestid", "")
        connection = self._connections.get(number) or _Connection(number, port)
        if not port or kind not in ("data", "error") or kind in connection.streams:
            await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        if self._open_streams >= MOST_STREAMS:
            await self._send(spdy.reset(frame.stream, spdy.REFUSED_STREAM))
            return
        self._open_streams += 1
        connection.streams[kind] = frame.stream
        self._connections[number] = self._streams[frame.stream] = connection
        await self._send(self._writer.reply(frame.stream))
        if connection.complete:
            tasks.create_task(self._serve(connection), name=f"port {port}")

    def _forget(self, connection: _Connection) -> None:
        """End a connection, whoever wishes so."""
        connection.leave()
        if self._connections.get(connection.number) is connection:
            del self._connections[connection.number]
        for stream in connection.streams.values():
            self._streams.pop(stream, None)
        if not connection.complete:  # others are counted until they are carried no more
            self._open_streams -= len(connection.streams)

    async def _serve(self, connection: _Connection) -> None:
        """One connection, from its beginning to its end, which the client is told in any case."""

        async def send(content: bytes) -> None:
            await self._send(spdy.data(connection.data, content))

        async def tell() -> None:
            await self._send(spdy.data(connection.error, connection.fault.encode(), last=True))
            await self._send(spdy.data(connection.data, b"", last=True))
            self._forget(connection)

        await _carry(connection, self._connect, self._whom, send, tell)
        self._open_streams -= len(connection.streams)

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
        async with asyncio.TaskGroup() as carried:
            for number, connection in enumerate(self._connections):
                carried.create_task(self._serve(2 * number, connection))
            async with Background() as tasks:
                ends = {
                    tasks.start(self._read(), name="client"),
                    tasks.start(self._all_told(), name="guest"),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await websockets.hang_up(self._websocket)
            for connection in self._connections:
                connection.leave()

    async def _read(self) -> None:
        while (message := await websockets.received(self._websocket)) is not None:
            number, odd = divmod(message[0], 2)
            if not odd and number < len(self._connections) and len(message) > 1:
                await self._connections[number].take(message[1:])

    async def _all_told(self) -> None:
        for connection in self._connections:
            await connection.told.wait()

    async def _serve(self, channel: int, connection: _Connection) -> None:
        async def tell() -> None:
            if connection.fault:
                await self._send(channel + 1, connection.fault.encode())

        for each in (channel, channel + 1):
            await self._send(each, connection.port.to_bytes(2, "little"))
        await _carry(connection, self._connect, self._whom, partial(self._send, channel), tell)

    async def _send(self, channel: int, content: bytes) -> None:
        await _send(self._websocket, bytes([channel]) + content)


async def _carry(
    connection: _Connection,
    connect: Open,
    whom: str,
    send: Callable[[bytes], Awaitable[None]],
    tell: Callable[[], Awaitable[None]],
) -> None:
    """Until the guest closes, or the client leaves; ``tell`` is called when no more comes to it.

    What the client has sent by then is the guest's still, for AFTERWARDS_SECONDS, unless the client
    has given it up.  ``connection.fault`` becomes what went wrong.
    """
    try:
        line = await connect(connection.port)
    except GuestError as error:
        connection.fault = f"error forwarding port {connection.port} to {whom}: {error}"
        await _over(connection, tell)
        return
    try:
        async with Background() as tasks:
            reading = tasks.start(_to_client(connection, line, send), name="to client")
            writing = tasks.start(_to_guest(connection, line), name="to guest")
            unwanted = tasks.start(connection.unwanted.wait(), name="unwanted")
            await asyncio.wait({reading, unwanted}, return_when=asyncio.FIRST_COMPLETED)
            await _over(connection, tell)
            due = asyncio.get_running_loop().time() + AFTERWARDS_SECONDS
            if not connection.is_given_up:
                await asyncio.wait({writing}, timeout=AFTERWARDS_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await line.finish()
    finally:
        line.close()


async def _over(connection: _Connection, tell: Callable[[], Awaitable[None]]) -> None:
    await tell()
    connection.told.set()
    connection.leave()


async def _send(websocket: WebSocket, message: bytes) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):  # whoever reads sees that it has gone
        await websocket.send_bytes(message)


async def _to_client(
    connection: _Connection, line: StreamLine, send: Callable[[bytes], Awaitable[None]]
) -> None:
    """A guest that nobody listens to is read all the same: it may not take the rest otherwise."""
    while content := await line.read():
        if not connection.unwanted.is_set():
            await send(content)


async def _to_guest(connection: _Connection, line: StreamLine) -> None:
    """What a guest that has closed does not take is lost, as on any connection."""
    is_taking = True
    while piece := await connection.pieces.get():
        try:
            if is_taking:
                await line.write(piece)
        except TimeoutError:
            is_taking = False
            connection.fault = f"port {connection.port} takes nothing any more"
            connection.unwanted.set()
        except OSError:
            is_taking = False
        connection.taken(piece)
    line.end()


def ports_of(names: Sequence[str]) -> list[int]:
    """The ports of a query (``ports=80&ports=81``, or ``80,81``).  Raises ValueError."""
    ports = [port_of(name) for text in names for name in text.split(",")]
    if not ports or len(ports) > MOST_PORTS or not all(ports):
        raise ValueError(f"ports: 1 to {MOST_PORTS} numbers from 1 to 65535 are to be named")
    return ports
