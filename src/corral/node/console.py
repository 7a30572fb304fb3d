"""Joins a websocket to a machine's serial console (KubeVirt's plain.kubevirt.io protocol).

Binary messages carry the bytes as they are, with no frames of their own; text is ignored.  One
client at a time: the next one displaces the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from corral.aio import Background
from corral.node.hypervisor import Console

PROTOCOL = "plain.kubevirt.io"
OPEN_SECONDS = 10.0

_DISPLACED = 1000
_GOING_AWAY = 1001


class _Seat:
    """The one place at a console: told to leave, and left."""

    def __init__(self) -> None:
        self.displaced = asyncio.Event()
        self.left = asyncio.Event()


class Consoles:
    """Who sits at which console."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}

    async def join(
        self, uid: str, websocket: WebSocket, connect: Callable[[], Awaitable[Console]]
    ) -> None:
        """Serve one client until either side ends, or another client comes.

        Raises what ``connect`` raises, and TimeoutError, before the websocket is accepted.
        """
        seat, before = _Seat(), self._seats.get(uid)
        self._seats[uid] = seat
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if before is not None:
                    before.displaced.set()
                    await before.left.wait()
                console = await connect()
            try:
                await websocket.accept(subprotocol=PROTOCOL)
                await _carry(websocket, console, seat.displaced)
            finally:
                console.close()
        finally:
            seat.left.set()
            if self._seats.get(uid) is seat:
                del self._seats[uid]
        if websocket.client_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, RuntimeError):  # it may go at any moment
                await websocket.close(_DISPLACED if seat.displaced.is_set() else _GOING_AWAY)


async def _carry(websocket: WebSocket, console: Console, displaced: asyncio.Event) -> None:
    async with Background() as tasks:
        ends = {
            tasks.start(_to_client(websocket, console), name="to client"),
            tasks.start(_to_guest(websocket, console), name="to guest"),
            tasks.start(displaced.wait(), name="displaced"),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


async def _to_client(websocket: WebSocket, console: Console) -> None:
    try:
        while printed := await console.read():
            await websocket.send_bytes(printed)
    except (WebSocketDisconnect, RuntimeError):
        return  # the client has gone: the other direction has seen it


async def _to_guest(websocket: WebSocket, console: Console) -> None:
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if typed := message.get("bytes"):
                await console.write(typed)
    except ConnectionError:
        return
