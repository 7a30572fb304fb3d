"""``kubectl port-forward``: many connections to one pod, over one websocket.

kubectl since 1.31 sends SPDY/3 inside of binary messages (subprotocol
``SPDY/3.1+portforward.k8s.io``); plain SPDY of earlier ones is converted to that by the server.
For each connection it opens two streams that name a port and a ``requestid``: one for data, one on
which it reads errors.
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
"""The most ports of a client that uses channels."""
MOST_STREAMS = 1024
"""The most open streams of one websocket; others are refused."""
AFTERWARDS_SECONDS = 10.0
"""Longest time for the guest to read pending data after the client has disconnected."""
MOST_WAITING_BYTES = 512 << 10
"""The most pending data of a connection while its guest does not read, exceeded by one message at
most.  The client's other connections are blocked then, since SPDY's flow control is not used."""
_PIECE_BYTES = 64
"""The overhead of a piece."""

Open = Callable[[int], Awaitable[StreamLine]]
"""Connects to a port.  Raises GuestError."""


@dataclass(slots=True)
class _Connection:
    """One connection: its streams, as far as they are open, and pending data for the guest."""

    number: str
    port: int
    streams: dict[str, int] = field(default_factory=dict)
    pieces: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    waiting: int = 0
    """Bytes that the guest has not read yet."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    input_ended: bool = False
    is_reset: bool = False
    """The client has dropped what the guest has not read yet."""
    output_dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Output of the guest is dropped."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The client was notified of the end."""
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

    async def put(self, piece: bytes) -> None:
        """Queue a piece for the guest, or (empty) the end of input; wait while it is full."""
        if self.input_ended:
            return
        self.input_ended = not piece
        self.pieces.put_nowait(piece)
        self.waiting += len(piece) + _PIECE_BYTES
        while self.waiting >= MOST_WAITING_BYTES and not self.output_dropped.is_set():
            self.room.clear()
            await self.room.wait()

    def done(self, piece: bytes) -> None:
        """Account for a piece that the guest has read, or never will."""
        self.waiting -= len(piece) + _PIECE_BYTES
        self.room.set()

    def disconnect(self) -> None:
        """End the client's side; what it has sent before is still delivered."""
        self.output_dropped.set()
        self.room.set()  # unblock the client's input
        if not self.input_ended:
            self.input_ended = True
            self.pieces.put_nowait(b"")


class PortForward:
    """One client of one pod, over SPDY; ``target`` is the pod in words."""

    def __init__(self, websocket: WebSocket, connect: Open, target: str) -> None:
        self._websocket = websocket
        self._connect = connect
        self._target = target
        self._writer = spdy.Writer()
        self._connections: dict[str, _Connection] = {}
        self._streams: dict[int, _Connection] = {}
        self._open_streams = 0
        """Includes streams of removed connections whose pending data is still delivered."""

    async def serve(self) -> None:
        """Serve until the client disconnects, or violates the protocol."""
        await self._websocket.accept(subprotocol=PROTOCOL)
        async with asyncio.TaskGroup() as tasks:
            with suppress(SpdyError):
                await self._read(tasks)
            await websockets.close(self._websocket)
            for connection in list(self._connections.values()):
                connection.disconnect()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        reader = spdy.Reader()
        while (message := await websockets.receive(self._websocket)) is not None:
            for frame in reader.feed(message):
                await self._handle(frame, tasks)

    async def _handle(self, frame: Frame, tasks: asyncio.TaskGroup) -> None:
        if isinstance(frame, Ping):
            await self._send(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            await self._open(frame, tasks)
        elif (connection := self._streams.get(frame.stream)) is not None:
            if isinstance(frame, Reset):
                connection.is_reset = True
                self._remove(connection)
            elif frame.stream == connection.data:
                await self._queue_data(connection, frame)

    async def _queue_data(self, connection: _Connection, frame: Data) -> None:
        if not connection.complete:  # data before the error stream is open
            self._remove(connection)
            await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        if frame.data:
            await connection.put(frame.data)
        if frame.last:
            await connection.put(b"")

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

    def _remove(self, connection: _Connection) -> None:
        """Remove a connection."""
        connection.disconnect()
        if self._connections.get(connection.number) is connection:
            del self._connections[connection.number]
        for stream in connection.streams.values():
            self._streams.pop(stream, None)
        if not connection.complete:  # others count until their data is delivered
            self._open_streams -= len(connection.streams)

    async def _serve(self, connection: _Connection) -> None:
        """Serve one connection to its end, of which the client is notified in any case."""

        async def send(content: bytes) -> None:
            await self._send(spdy.data(connection.data, content))

        async def notify() -> None:
            await self._send(spdy.data(connection.error, connection.fault.encode(), last=True))
            await self._send(spdy.data(connection.data, b"", last=True))
            self._remove(connection)

        await _carry(connection, self._connect, self._target, send, notify)
        self._open_streams -= len(connection.streams)

    async def _send(self, frame: bytes) -> None:
        await _send(self._websocket, frame)


class PortChannels:
    """The same for other clients than kubectl: a fixed set of ports, with a connection to each.

    The first byte of a message is its channel: an even one for each port's data, the next odd one
    for its errors; the first message on each is the port's number (v4.channel.k8s.io).
    """

    def __init__(
        self, websocket: WebSocket, connect: Open, target: str, ports: Sequence[int]
    ) -> None:
        self._websocket = websocket
        self._connect = connect
        self._target = target
        self._connections = [_Connection(str(port), port) for port in ports]

    async def serve(self) -> None:
        """Serve until the client disconnects, or the guest has closed every connection."""
        await self._websocket.accept(subprotocol=CHANNELS)
        async with asyncio.TaskGroup() as carried:
            for number, connection in enumerate(self._connections):
                carried.create_task(self._serve(2 * number, connection))
            async with Background() as tasks:
                ends = {
                    tasks.start(self._read(), name="client"),
                    tasks.start(self._all_ended(), name="guest"),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await websockets.close(self._websocket)
            for connection in self._connections:
                connection.disconnect()

    async def _read(self) -> None:
        while (message := await websockets.receive(self._websocket)) is not None:
            number, odd = divmod(message[0], 2)
            if not odd and number < len(self._connections) and len(message) > 1:
                await self._connections[number].put(message[1:])

    async def _all_ended(self) -> None:
        for connection in self._connections:
            await connection.ended.wait()

    async def _serve(self, channel: int, connection: _Connection) -> None:
        async def notify() -> None:
            if connection.fault:
                await self._send(channel + 1, connection.fault.encode())

        for each in (channel, channel + 1):
            await self._send(each, connection.port.to_bytes(2, "little"))
        await _carry(connection, self._connect, self._target, partial(self._send, channel), notify)

    async def _send(self, channel: int, content: bytes) -> None:
        await _send(self._websocket, bytes([channel]) + content)


async def _carry(
    connection: _Connection,
    connect: Open,
    target: str,
    send: Callable[[bytes], Awaitable[None]],
    notify: Callable[[], Awaitable[None]],
) -> None:
    """Carry data until the guest closes, or the client disconnects; then call ``notify``.

    Data that the client has sent by then is still delivered, for AFTERWARDS_SECONDS, unless the
    client has reset the connection.  ``connection.fault`` becomes the error, if there is one.
    """
    try:
        line = await connect(connection.port)
    except GuestError as error:
        connection.fault = f"error forwarding port {connection.port} to {target}: {error}"
        await _end(connection, notify)
        return
    try:
        async with Background() as tasks:
            reading = tasks.start(_to_client(connection, line, send), name="to client")
            writing = tasks.start(_to_guest(connection, line), name="to guest")
            output_dropped = tasks.start(connection.output_dropped.wait(), name="output dropped")
            await asyncio.wait({reading, output_dropped}, return_when=asyncio.FIRST_COMPLETED)
            await _end(connection, notify)
            due = asyncio.get_running_loop().time() + AFTERWARDS_SECONDS
            if not connection.is_reset:
                await asyncio.wait({writing}, timeout=AFTERWARDS_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await line.finish()
    finally:
        line.close()


async def _end(connection: _Connection, notify: Callable[[], Awaitable[None]]) -> None:
    await notify()
    connection.ended.set()
    connection.disconnect()


async def _send(websocket: WebSocket, message: bytes) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):  # the reader notices the disconnect
        await websocket.send_bytes(message)


async def _to_client(
    connection: _Connection, line: StreamLine, send: Callable[[bytes], Awaitable[None]]
) -> None:
    """Read the guest's output even if it is dropped: a blocked guest may not read its input."""
    while content := await line.read():
        if not connection.output_dropped.is_set():
            await send(content)


async def _to_guest(connection: _Connection, line: StreamLine) -> None:
    """Write to the guest; what it does not read after closing is lost, as with any connection."""
    is_writable = True
    while piece := await connection.pieces.get():
        try:
            if is_writable:
                await line.write(piece)
        except TimeoutError:
            is_writable = False
            connection.fault = f"port {connection.port} does not read any more"
            connection.output_dropped.set()
        except OSError:
            is_writable = False
        connection.done(piece)
    line.end()


def ports_of(names: Sequence[str]) -> list[int]:
    """Return the ports of a query (``ports=80&ports=81``, or ``80,81``).  Raises ValueError."""
    ports = [port_of(name) for text in names for name in text.split(",")]
    if not ports or len(ports) > MOST_PORTS or not all(ports):
        raise ValueError(f"ports: name 1 to {MOST_PORTS} numbers from 1 to 65535")
    return ports
