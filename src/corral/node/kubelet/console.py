"""Consoles and screens, for one client each: the next client displaces the one before."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket

from corral.aio import run_until
from corral.node.kubelet import websockets
from corral.node.streams import StreamLine

OPEN_SECONDS = 30.0
LEAVING_SECONDS = 1.0
"""Longest time until the client's disconnect arrives, when the next one is here already."""


class Occupied(Exception):
    """Another client is connected, and is not to be displaced."""


class _Session:
    """A client's session at a console, with events for its displacement and its end."""

    def __init__(self) -> None:
        self.displaced = asyncio.Event()
        self.ended = asyncio.Event()


async def _ends_soon(session: _Session) -> bool:
    """Return whether a session is about to end: its client may be the one that reconnects."""
    try:
        async with asyncio.timeout(LEAVING_SECONDS):
            await session.ended.wait()
    except TimeoutError:
        return False
    return True


class Consoles:
    """The sessions of all consoles."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    async def join(
        self,
        name: str,
        websocket: WebSocket,
        connect: Callable[[], Awaitable[StreamLine]],
        *,
        displace: bool = True,
    ) -> None:
        """Serve one client until either side closes, or another client displaces it.

        Raises what ``connect`` raises, TimeoutError, and Occupied, before the websocket is
        accepted.
        """
        while not displace and (occupant := self._sessions.get(name)) is not None:
            if not await _ends_soon(occupant):
                raise Occupied
        session, previous = _Session(), self._sessions.get(name)
        self._sessions[name] = session
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if previous is not None:
                    previous.displaced.set()
                    await previous.ended.wait()
                line = await connect()
            try:
                await websocket.accept(subprotocol=websockets.PLAIN)
                await websockets.carry(
                    websocket, line, session.displaced, goodbye=websockets.GOING_AWAY
                )
                # A serial port is slow, and QEMU drops what the guest has not read when its client
                # disconnects.
                await run_until(session.displaced, line.finish())
            finally:
                line.close()
        finally:
            session.ended.set()
            if self._sessions.get(name) is session:
                del self._sessions[name]
        if session.displaced.is_set():
            # KubeVirt cuts the connection, from which virtctl concludes that another client came.
            await websockets.close(websocket, websockets.CUT)
        else:
            await websockets.close(websocket, websockets.GOING_AWAY)
