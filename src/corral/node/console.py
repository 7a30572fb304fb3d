"""Joins a websocket to a machine's serial console (KubeVirt's plain.kubevirt.io protocol).

Binary messages carry the bytes as they are, with no frames of their own; text is ignored.  One
client at a time: the next one displaces the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from corral.aio import Background
from corral.node.hypervisor import Console

PROTOCOL = "plain.kubevirt.io"
OPEN_SECONDS = 10.0

_DISPLACED = 1000
_GOING_AWAY = 1001


class Consoles:
    """Who is connected to which console."""

    def __init__(self) -> None:
        self._present: dict[str, asyncio.Event] = {}
        self._closed: dict[str, asyncio.Event] = {}

    async def join(
        self, uid: str, websocket: WebSocket, connect: Callable[[], Awaitable[Console]]
    ) -> None:
        """Serve one client until either side ends, or another client comes."""
        displaced = await self._displace(uid)
        closed = self._closed[uid] = asyncio.Event()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                console = await connect()
            await websocket.accept(subprotocol=PROTOCOL)
            try:
                await _carry(websocket, console, displaced)
            finally:
                console.close()
        finally:
            closed.set()
            if self._closed.get(uid) is closed:
                del self._closed[uid], self._present[uid]
        if websocket.application_state is WebSocketState.CONNECTED:
            await websocket.close(_DISPLACED if displaced.is_set() else _GOING_AWAY)

    async def _displace(self, uid: str) -> asyncio.Event:
        """Send away who is there, and wait until the line is free."""
        if (present := self._present.get(uid)) is not None:
            present.set()
        mine = self._present[uid] = asyncio.Event()
        if (closed := self._closed.get(uid)) is not None:
            async with asyncio.timeout(OPEN_SECONDS):
                await closed.wait()
        return mine


async def _carry(websocket: WebSocket, console: Console, displaced: asyncio.Event) -> None:
    async with Background() as tasks:
        ends = {
            tasks.start(_to_client(websocket, console), name="to client"),
            tasks.start(_to_guest(websocket, console), name="to guest"),
            tasks.start(_wait(displaced), name="displaced"),
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


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
