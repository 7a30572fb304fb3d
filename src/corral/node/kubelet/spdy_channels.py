"""A command's channels as SPDY streams: what kubectl before 1.31 speaks, shown as a websocket.

Each channel is a stream that says what it is for (``streamtype``: error, stdin, stdout, stderr,
resize).  Streams tell where they end, as the newest protocol of channels does, so ``exec_command``
need not know of them.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.node.kubelet import spdy, websockets
from corral.node.kubelet.spdy import Frame, Opened, Ping, Reset, SpdyError

_TUNNEL: Final = "SPDY/3.1+"
_TELLING_CODES: Final = tuple(f"{_TUNNEL}v{number}.channel.k8s.io" for number in (5, 4))
"""The protocols whose error stream takes a Status; the others' takes words, and only of faults."""
_RESIZING: Final = (*_TELLING_CODES, f"{_TUNNEL}v3.channel.k8s.io")
"""Those in which a terminal has a stream for its size."""
PROTOCOLS: Final = (*_RESIZING, *(f"{_TUNNEL}{name}channel.k8s.io" for name in ("v2.", "")))
"""The ones that are spoken, the best first."""
SHOWN: Final = "v5.channel.k8s.io"
OPENING_SECONDS: Final = 30.0
"""How long a client may take to open the streams that it has asked for, as at a kubelet."""
LARGEST_EARLY_BYTES: Final = 64 * 1024
"""Input that is kept while streams are still missing: clients send it once all are open."""

_CHANNELS: Final[Mapping[str, int]] = {
    "stdin": 0,
    "stdout": 1,
    "stderr": 2,
    "error": 3,
    "resize": 4,
}
_INPUT: Final = _CHANNELS["stdin"]
_STATUS: Final = _CHANNELS["error"]
_INPUT_ENDS: Final = bytes([255, _INPUT])
_LEFT: Final[Message] = {"type": "websocket.disconnect", "code": websockets.NORMAL}


def channels(websocket: WebSocket) -> WebSocket:
    """The websocket itself, or one that stands for the SPDY streams in it."""
    offered = websocket.scope.get("subprotocols") or []
    protocol = next((one for one in offered if one in PROTOCOLS), None)
    if protocol is None:
        return websocket
    query = websocket.query_params
    asked = {name for name in ("stdin", "stdout", "stderr") if query.get(name) == "true"}
    if query.get("tty") == "true":
        asked.discard("stderr")  # a terminal has one output
        asked |= {"resize"} if protocol in _RESIZING else set()
    streams = _Streams(websocket, protocol, {"error"} | asked)
    return WebSocket({**websocket.scope, "subprotocols": [SHOWN]}, streams.receive, streams.send)


class _Streams:
    """Both sides of such a websocket: messages of channels here, SPDY frames there."""

    def __init__(self, websocket: WebSocket, protocol: str, asked: set[str]) -> None:
        self._websocket = websocket
        self._protocol = protocol
        self._asked = {_CHANNELS[name] for name in asked}
        self._reader, self._writer = spdy.Reader(), spdy.Writer()
        self._streams: dict[int, int] = {}  # of a channel; 0 once it was given up
        self._messages: deque[bytes] = deque()
        self._input_over = False
        self._end: Message | None = None  # once the client has left, or as good as

    async def receive(self) -> Message:
        """What the client says next.  Frames that make no sense are as if it had left."""
        while not self._messages:
            if self._end is not None:
                return self._end
            message = await self._websocket.receive()
            if message["type"] == "websocket.connect":
                return message
            await self._hear(message)
        return {"type": "websocket.receive", "bytes": self._messages.popleft()}

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                await self._websocket.send({**message, "subprotocol": self._protocol})
                await self._all_open()
            case "websocket.send":
                await self._say(message["bytes"][0], message["bytes"][1:])
            case "websocket.close":
                for stream in filter(None, self._streams.values()):
                    await self._send(spdy.data(stream, b"", last=True))
                await self._websocket.send(message)
            case _:
                await self._websocket.send(message)

    async def _all_open(self) -> None:
        """Wait for all streams.  Raises WebSocketDisconnect: nothing is run for who opens none."""
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                while not self._asked <= self._streams.keys() and self._end is None:
                    await self._hear(await self._websocket.receive())
                    if sum(map(len, self._messages)) > LARGEST_EARLY_BYTES:
                        break
        except TimeoutError:
            pass
        if not self._asked <= self._streams.keys() or self._end is not None:
            await self._hang_up()
            raise WebSocketDisconnect

    async def _hear(self, message: Message) -> None:
        if message["type"] != "websocket.receive":
            self._end = message
            return
        try:
            for frame in self._reader.feed(message.get("bytes") or b""):
                await self._take(frame)
                if self._end is not None:
                    return
        except SpdyError:
            await self._hang_up()

    async def _hang_up(self) -> None:
        self._end = _LEFT
        await websockets.hang_up(self._websocket)

    async def _take(self, frame: Frame) -> None:
        if isinstance(frame, Ping):
            await self._reply(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            await self._open(frame)
        elif isinstance(frame, Reset):
            await self._give_up(frame.stream)
        elif frame.stream == self._streams.get(_INPUT):
            self._type(frame.data, last=frame.last)

    async def _open(self, frame: Opened) -> None:
        channel = _CHANNELS.get(frame.headers.get("streamtype", ""))
        if channel is None or channel in self._streams:
            await self._reply(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        self._streams[channel] = frame.stream
        await self._reply(self._writer.reply(frame.stream))
        if channel == _INPUT:
            self._type(b"", last=frame.last)

    def _type(self, content: bytes, *, last: bool) -> None:
        if content and not self._input_over:
            self._messages.append(bytes([_INPUT]) + content)
        if last and not self._input_over:
            self._input_over = True
            self._messages.append(_INPUT_ENDS)

    async def _give_up(self, stream: int) -> None:
        """The client takes back a stream; without half its input, or the end, nothing is run."""
        for channel, opened in self._streams.items():
            if opened == stream:
                self._streams[channel] = 0
                if channel == _STATUS or (channel == _INPUT and not self._input_over):
                    await self._hang_up()

    async def _say(self, channel: int, content: bytes) -> None:
        if channel == _STATUS and self._protocol not in _TELLING_CODES:
            content = _in_words(content)
        if content and (stream := self._streams.get(channel)):
            await self._send(spdy.data(stream, content))

    async def _reply(self, packet: bytes) -> None:
        """Answer a frame; that the client has gone is heard where one listens."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._send(packet)

    async def _send(self, packet: bytes) -> None:
        await self._websocket.send({"type": "websocket.send", "bytes": packet})


def _in_words(status: bytes) -> bytes:
    """What a Status says of a fault; nothing where all went well."""
    told = msgspec.json.decode(status)
    return b"" if told["status"] == "Success" else str(told["message"]).encode()
