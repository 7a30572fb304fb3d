"""``kubectl port-forward``: many connections into one pod, over one websocket.

kubectl since 1.31 sends SPDY/3 inside of binary messages (subprotocol
``SPDY/3.1+portforward.k8s.io``).  For each connection it opens two streams that name a port and a
number of their own (``requestid``): one for data, one on which it reads what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.aio import Background
from corral.node import spdy, websockets
from corral.node.hypervisor import GuestError
from corral.node.lines import StreamLine
from corral.node.spdy import Data, Frame, Opened, Ping, Reset, SpdyError

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
MOST_STREAMS = 1024
"""Streams that one websocket may have open; the others are refused."""
_PORTS = range(1, 65536)
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
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def data(self) -> int:
        return self.streams.get("data", 0)

    @property
    def error(self) -> int:
        return self.streams.get("error", 0)


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
        if frame.data:
            await connection.pieces.put(frame.data)
        if frame.last:
            await connection.pieces.put(b"")

    async def _open(self, frame: Opened, tasks: Background) -> None:
        kind, port = frame.headers.get("streamtype", ""), frame.headers.get("port", "")
        number = frame.headers.get("requestid", "")
        known = port.isascii() and port.isdecimal() and len(port) < 6 and int(port) in _PORTS
        connection = self._connections.get(number) or _Connection(number, int(port) if known else 0)
        twice = frame.stream in self._streams or kind in connection.streams
        if not known or kind not in ("data", "error") or twice:
            await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        if len(self._streams) >= MOST_STREAMS:
            await self._send(spdy.reset(frame.stream, spdy.REFUSED_STREAM))
            return
        connection.streams[kind] = frame.stream
        self._connections[number] = self._streams[frame.stream] = connection
        await self._send(self._writer.reply(frame.stream))
        if len(connection.streams) == 2:
            tasks.start(self._serve(connection), name=f"port {port}")

    def _forget(self, connection: _Connection) -> None:
        """End a connection, whoever wishes so."""
        connection.given_up.set()
        self._connections.pop(connection.number, None)
        for stream in connection.streams.values():
            self._streams.pop(stream, None)
        while not connection.pieces.empty():  # whoever waits for room there may go on
            connection.pieces.get_nowait()

    async def _serve(self, connection: _Connection) -> None:
        """One connection, from its beginning to its end, which the client is told in any case."""
        try:
            async with Background() as tasks:
                carried = tasks.start(self._carry(connection), name="carry")
                given_up = tasks.start(connection.given_up.wait(), name="given up")
                await asyncio.wait({carried, given_up}, return_when=asyncio.FIRST_COMPLETED)
                fault = carried.result() if carried.done() else ""
            await self._send(spdy.data(connection.error, fault.encode(), last=True))
            await self._send(spdy.data(connection.data, b"", last=True))
        finally:
            self._forget(connection)

    async def _carry(self, connection: _Connection) -> str:
        """Until the guest closes; answers what went wrong."""
        try:
            line = await self._connect(connection.port)
        except GuestError as error:
            return f"error forwarding port {connection.port} to {self._whom}: {error}"
        try:
            async with Background() as tasks:
                tasks.start(_to_guest(connection, line), name="to guest")
                while content := await line.read():
                    await self._send(spdy.data(connection.data, content))
        finally:
            line.close()
        return ""

    async def _send(self, frame: bytes) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # whoever reads sees that it has gone
            await self._websocket.send_bytes(frame)


async def _to_guest(connection: _Connection, line: StreamLine) -> None:
    """What a guest that has closed does not take is lost, as on any connection."""
    while piece := await connection.pieces.get():
        with suppress(OSError):
            await line.write(piece)
    line.end()
