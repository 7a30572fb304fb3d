"""Consoles and screens, each with one seat: the next client displaces the one before."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket

from corral.aio import run_until
from corral.node.kubelet import websockets
from corral.node.streams import StreamLine

OPEN_SECONDS = 30.0
LEAVING_SECONDS = 1.0
"""So long whoever leaves may take to be gone: the news of it takes another way than the next."""


class Occupied(Exception):
    """Somebody sits there, and is not to be displaced."""


class _Seat:
    """The one place at a console: told to leave, and left."""

    def __init__(self) -> None:
        self.displaced = asyncio.Event()
        self.left = asyncio.Event()


async def _leaves(seat: _Seat) -> bool:
    """Whether whoever sits there is about to leave: it may be who wants to sit down again."""
    try:
        async with asyncio.timeout(LEAVING_SECONDS):
            await seat.left.wait()
    except TimeoutError:
        return False
    return True


class Consoles:
    """Who sits at which console."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}

    async def join(
        self,
        which: str,
        websocket: WebSocket,
        connect: Callable[[], Awaitable[StreamLine]],
        *,
        displace: bool = True,
    ) -> None:
        """Serve one client until either side ends, or another client comes.

        Raises what ``connect`` raises, TimeoutError, and Occupied, before the websocket is
        accepted.
        """
        while not displace and (sitting := self._seats.get(which)) is not None:
            if not await _leaves(sitting):
                raise Occupied
        seat, before = _Seat(), self._seats.get(which)
        self._seats[which] = seat
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if before is not None:
                    before.displaced.set()
                    await before.left.wait()
                line = await connect()
            try:
                await websocket.accept(subprotocol=websockets.PLAIN)
                await websockets.carry(
                    websocket, line, seat.displaced, goodbye=websockets.GOING_AWAY
                )
                # A serial port is slow, and QEMU throws away what the guest has not taken when its
                # client hangs up.
                await run_until(seat.displaced, line.finish())
            finally:
                line.close()
        finally:
            seat.left.set()
            if self._seats.get(which) is seat:
                del self._seats[which]
        if seat.displaced.is_set():
            # KubeVirt cuts the connection, which virtctl takes for another client's coming
            await websockets.hang_up(websocket, websockets.CUT)
        else:
            await websockets.hang_up(websocket, websockets.GOING_AWAY)
