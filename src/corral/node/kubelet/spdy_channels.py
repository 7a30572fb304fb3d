"""Converts a command's SPDY streams, which kubectl before 1.31 uses, to channels of a websocket.

Each channel is a stream whose header names its purpose (``streamtype``: error, stdin, stdout,
stderr, resize).  Streams signal their end, as the newest channel protocol does, so ``exec_command``
need not know about SPDY.
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
from corral.node.kubelet.exec_options import ExecOptions
from corral.node.kubelet.spdy import Frame, Opened, Ping, Reset, SpdyError

_TUNNEL: Final = "SPDY/3.1+"
_WITH_STATUS: Final = tuple(f"{_TUNNEL}v{number}.channel.k8s.io" for number in (5, 4))
"""Protocols whose error stream carries a Status; others carry text, and only for errors."""
_RESIZING: Final = (*_WITH_STATUS, f"{_TUNNEL}v3.channel.k8s.io")
"""Protocols in which a terminal has a stream for its size."""
PROTOCOLS: Final = (*_RESIZING, *(f"{_TUNNEL}{name}channel.k8s.io" for name in ("v2.", "")))
"""The supported ones, best first."""
SHOWN: Final = "v5.channel.k8s.io"
OPENING_SECONDS: Final = 30.0
"""Longest time for a client to open the requested streams, as at a kubelet."""
LARGEST_EARLY_BYTES: Final = 64 * 1024
"""The most input that is kept while streams are missing: clients send it once all are open."""

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
_DISCONNECT: Final[Message] = {"type": "websocket.disconnect", "code": websockets.NORMAL}


def channels(websocket: WebSocket) -> WebSocket:
    """Return the websocket itself, or one that converts its SPDY streams."""
    offered = websocket.scope.get("subprotocols") or []
    protocol = next((one for one in offered if one in PROTOCOLS), None)
    if protocol is None:
        return websocket
    options = ExecOptions.of(websocket.query_params)
    requested = options.streams()
    if options.tty:
        requested.discard("stderr")  # a terminal has one output
        requested |= {"resize"} if protocol in _RESIZING else set()
    streams = _Streams(websocket, protocol, {"error"} | requested)
    return WebSocket({**websocket.scope, "subprotocols": [SHOWN]}, streams.receive, streams.send)


class _Streams:
    """A websocket's two sides: channel messages on ours, SPDY frames on the client's."""

    def __init__(self, websocket: WebSocket, protocol: str, requested: set[str]) -> None:
        self._websocket = websocket
        self._protocol = protocol
        self._requested = {_CHANNELS[name] for name in requested}
        self._reader, self._writer = spdy.Reader(), spdy.Writer()
        self._streams: dict[int, int] = {}  # by channel; 0 once it was cancelled
        self._messages: deque[bytes] = deque()
        self._input_ended = False
        self._end: Message | None = None  # set when the client has disconnected

    async def receive(self) -> Message:
        """Return the client's next message; invalid frames count as a disconnect."""
        while not self._messages:
            if self._end is not None:
                return self._end
            message = await self._websocket.receive()
            if message["type"] == "websocket.connect":
                return message
            await self._handle_message(message)
        return {"type": "websocket.receive", "bytes": self._messages.popleft()}

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                await self._websocket.send({**message, "subprotocol": self._protocol})
                await self._wait_for_streams()
            case "websocket.send":
                await self._send_channel(message["bytes"][0], message["bytes"][1:])
            case "websocket.close":
                for stream in filter(None, self._streams.values()):
                    await self._send(spdy.data(stream, b"", last=True))
                await self._websocket.send(message)
            case _:
                await self._websocket.send(message)

    async def _wait_for_streams(self) -> None:
        """Wait for all streams.

        Raises WebSocketDisconnect if one is missing: nothing is run then.
        """
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                while not self._requested <= self._streams.keys() and self._end is None:
                    await self._handle_message(await self._websocket.receive())
                    if sum(map(len, self._messages)) > LARGEST_EARLY_BYTES:
                        break
        except TimeoutError:
            pass
        if not self._requested <= self._streams.keys() or self._end is not None:
            await self._close()
            raise WebSocketDisconnect

    async def _handle_message(self, message: Message) -> None:
        if message["type"] != "websocket.receive":
            self._end = message
            return
        try:
            for frame in self._reader.feed(message.get("bytes") or b""):
                await self._handle_frame(frame)
                if self._end is not None:
                    return
        except SpdyError:
            await self._close()

    async def _close(self) -> None:
        self._end = _DISCONNECT
        await websockets.close(self._websocket)

    async def _handle_frame(self, frame: Frame) -> None:
        if isinstance(frame, Ping):
            await self._reply(spdy.ping(frame.number))
        elif isinstance(frame, Opened):
            await self._open(frame)
        elif isinstance(frame, Reset):
            await self._handle_reset(frame.stream)
        elif frame.stream == self._streams.get(_INPUT):
            self._queue_input(frame.data, last=frame.last)

    async def _open(self, frame: Opened) -> None:
        channel = _CHANNELS.get(frame.headers.get("streamtype", ""))
        if channel is None or channel in self._streams:
            await self._reply(spdy.reset(frame.stream, spdy.PROTOCOL_ERROR))
            return
        self._streams[channel] = frame.stream
        await self._reply(self._writer.reply(frame.stream))
        if channel == _INPUT:
            self._queue_input(b"", last=frame.last)

    def _queue_input(self, content: bytes, *, last: bool) -> None:
        if content and not self._input_ended:
            self._messages.append(bytes([_INPUT]) + content)
        if last and not self._input_ended:
            self._input_ended = True
            self._messages.append(_INPUT_ENDS)

    async def _handle_reset(self, stream: int) -> None:
        """Handle a reset; without all of its input, or an error stream, the command is not run."""
        for channel, opened in self._streams.items():
            if opened == stream:
                self._streams[channel] = 0
                if channel == _STATUS or (channel == _INPUT and not self._input_ended):
                    await self._close()

    async def _send_channel(self, channel: int, content: bytes) -> None:
        if channel == _STATUS and self._protocol not in _WITH_STATUS:
            content = _error_text(content)
        if content and (stream := self._streams.get(channel)):
            await self._send(spdy.data(stream, content))

    async def _reply(self, packet: bytes) -> None:
        """Reply to a frame; a disconnect is noticed by ``receive``."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._send(packet)

    async def _send(self, packet: bytes) -> None:
        await self._websocket.send({"type": "websocket.send", "bytes": packet})


def _error_text(status: bytes) -> bytes:
    """Return the message of a Status; empty for success."""
    document = msgspec.json.decode(status)
    return b"" if document["status"] == "Success" else str(document["message"]).encode()
