"""A command's channels as SPDY streams: what kubectl before 1.31 speaks, shown as a websocket.

Each channel is a stream that says what it is for (``streamtype``: error, stdin, stdout, stderr,
resize).  Streams tell where they end, as the newest protocol of channels does, so ``commands`` need
not know of them.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from starlette.types import Message
from starlette.websockets import WebSocket

from corral.node import spdy, websockets
from corral.node.spdy import Data, Frame, Opened, Ping, SpdyError

PROTOCOL: Final = "SPDY/3.1+v4.channel.k8s.io"
SHOWN: Final = "v5.channel.k8s.io"
OPENING_SECONDS: Final = 30.0
"""How long a client may take to open the streams that it has asked for, as at a kubelet."""

_CHANNELS: Final[Mapping[str, int]] = {
    "stdin": 0,
    "stdout": 1,
    "stderr": 2,
    "error": 3,
    "resize": 4,
}
_INPUT: Final = _CHANNELS["stdin"]
_INPUT_ENDS: Final = bytes([255, _INPUT])


def channels(websocket: WebSocket) -> WebSocket:
    """The websocket itself, or one that stands for the SPDY streams in it."""
    if PROTOCOL not in (websocket.scope.get("subprotocols") or []):
        return websocket
    query = websocket.query_params
    asked = {name for name in ("stdin", "stdout", "stderr") if query.get(name) == "true"}
    if query.get("tty") == "true":
        asked.discard("stderr")  # a terminal has one output
    streams = _Streams(websocket, {"error"} | asked)
    return WebSocket({**websocket.scope, "subprotocols": [SHOWN]}, streams.receive, streams.send)


class _Streams:
    """Both sides of such a websocket: messages of channels here, SPDY frames there."""

    def __init__(self, websocket: WebSocket, asked: set[str]) -> None:
        self._websocket = websocket
        self._asked = {_CHANNELS[name] for name in asked}
        self._reader, self._writer = spdy.Reader(), spdy.Writer()
        self._streams: dict[int, int] = {}  # of a channel
        self._messages: deque[bytes] = deque()

    async def receive(self) -> Message:
        """What the client says next.  Frames that make no sense are as if it had left."""
        while not self._messages:
            message = await self._websocket.receive()
            if message["type"] != "websocket.receive":
                return message
            try:
                await self._feed(message.get("bytes") or b"")
            except SpdyError:
                await websockets.hang_up(self._websocket)
                return {"type": "websocket.disconnect", "code": websockets.NORMAL}
        return {"type": "websocket.receive", "bytes": self._messages.popleft()}

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                await self._websocket.send({**message, "subprotocol": PROTOCOL})
                await self._all_open()
            case "websocket.send":
                await self._say(message["bytes"][0], message["bytes"][1:])
            case "websocket.close":
                for stream in self._streams.values():
                    await self._send(spdy.data(stream, b"", last=True))
                await self._websocket.send(message)
            case _:
                await self._websocket.send(message)

    async def _all_open(self) -> None:
        """Wait for all streams; where they do not come, what is said on them is lost."""
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                while not self._asked <= self._streams.keys():
                    message = await self._websocket.receive()
                    if message["type"] != "websocket.receive":
                        return
                    await self._feed(message.get("bytes") or b"")
        except (TimeoutError, SpdyError):
            return

    async def _feed(self, content: bytes) -> None:
        for frame in self._reader.feed(content):
            await self._take(frame)

    async def _take(self, frame: Frame) -> None:
        if isinstance(frame, Ping):
            await self._send(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            channel = _CHANNELS.get(frame.headers.get("streamtype", ""))
            if channel is None or channel in self._streams:
                await self._send(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
                return
            self._streams[channel] = frame.stream
            await self._send(self._writer.reply(frame.stream))
            if frame.last and channel == _INPUT:
                self._messages.append(_INPUT_ENDS)
        elif isinstance(frame, Data) and frame.stream == self._streams.get(_INPUT):
            if frame.data:
                self._messages.append(bytes([_INPUT]) + frame.data)
            if frame.last:
                self._messages.append(_INPUT_ENDS)

    async def _say(self, channel: int, content: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            await self._send(spdy.data(stream, content))

    async def _send(self, packet: bytes) -> None:
        await self._websocket.send({"type": "websocket.send", "bytes": packet})
