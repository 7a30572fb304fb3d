"""Websockets to guests: KubeVirt's plain.kubevirt.io protocol, and refusals.

Binary messages carry bytes without framing; text messages are ignored.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from corral.aio import Background
from corral.api.errors import ApiError
from corral.node.streams import Line

PLAIN = "plain.kubevirt.io"

AFTERWARDS_SECONDS = 10.0
"""Longest time for a guest that has closed to read what its client has sent before."""
NORMAL = 1000
GOING_AWAY = 1001
CUT = 1006
"""The connection is closed without a close frame (RFC 6455, 7.4.1)."""


async def carry(
    websocket: WebSocket,
    line: Line,
    until: asyncio.Event | None = None,
    *,
    end: Callable[[], None] | None = None,
    goodbye: int = NORMAL,
) -> None:
    """Carry bytes both ways until either side closes, the event is set, or the guest stalls.

    What a side has sent before it closed reaches the other; a side that stops reading may still
    send.  ``end`` is called when the client has ended its input and still reads: it sends an empty
    message then, which KubeVirt's clients never do, and its servers accept.  A client whose guest
    has closed gets the close code ``goodbye``, and what it has sent is delivered.
    """
    async with Background() as tasks:
        reading = tasks.start(_to_client(websocket, line), name="to client")
        ends: set[asyncio.Task[Any]] = {
            tasks.start(_to_guest(websocket, line, end), name="to guest")
        }
        if until is not None:
            ends.add(tasks.start(until.wait(), name="until"))
        done, _ = await asyncio.wait({reading, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if done == {reading}:
            await close(websocket, goodbye)
            await asyncio.wait(
                ends, timeout=AFTERWARDS_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )


async def _to_client(websocket: WebSocket, line: Line) -> None:
    """Carry to the guest's end; a disconnected client is noticed by the other direction.

    Data of the client may still be on its way, and a guest that is blocked writing may not read.
    """
    is_there = True
    while data := await line.read():
        if is_there:
            try:
                await websocket.send_bytes(data)
            except (WebSocketDisconnect, RuntimeError):
                is_there = False


async def _to_guest(websocket: WebSocket, line: Line, end: Callable[[], None] | None) -> None:
    """Carry to the client's end, or until the guest stalls.

    A guest that has closed does not end it: what it has sent before is still read.
    """
    has_ended = is_closed = False
    while (data := await message(websocket)) is not None:
        if not data and end is not None:
            end()
            has_ended = True
        elif has_ended:
            return  # it has ended its input, and sends more all the same
        elif data and not is_closed:
            try:
                await line.write(data)
            except ConnectionError:
                is_closed = True
            except OSError:  # of which TimeoutError is one
                return


async def receive(websocket: WebSocket) -> bytes | None:
    """Return the next binary message that is not empty; None when the client has disconnected."""
    while (data := await message(websocket)) == b"":
        pass
    return data


async def message(websocket: WebSocket) -> bytes | None:
    """Return the next binary message; None when the client has disconnected."""
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return None
        if (data := received.get("bytes")) is not None:
            return bytes(data)


async def close(websocket: WebSocket, code: int = NORMAL, reason: str = "") -> None:
    """Close a websocket that the client may have closed already."""
    if websocket.client_state is WebSocketState.CONNECTED:
        with suppress(WebSocketDisconnect, RuntimeError):  # it may go at any moment
            await websocket.close(code, reason)


async def deny(websocket: WebSocket, error: ApiError) -> None:
    """Refuse before the upgrade, with a Status that clients can show."""
    await websocket.send_denial_response(JSONResponse(error.status(), status_code=error.code))
