"""Websockets to guests: KubeVirt's plain.kubevirt.io protocol, and how one is refused.

Binary messages carry the bytes as they are, with no frames of their own; text is ignored.
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
"""How long a guest that has said all may take for what its client has said before that."""
NORMAL = 1000
GOING_AWAY = 1001
CUT = 1006
"""The connection ends without a word, as RFC 6455 has this code (7.4.1)."""


async def carry(
    websocket: WebSocket,
    line: Line,
    until: asyncio.Event | None = None,
    *,
    end: Callable[[], None] | None = None,
    goodbye: int = NORMAL,
) -> None:
    """Carry bytes both ways until either side has said all, the event is set, or the guest stalls.

    What a side has said before it left reaches the other; that one side takes nothing more is not
    the end of what it has said.  ``end`` is called when the client has said all and still listens:
    it sends an empty message then, which KubeVirt's clients never do, and its servers do not mind.
    A client whose guest has said all is told, by ``goodbye``, and what it has sent is delivered.
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
            await hang_up(websocket, goodbye)
            await asyncio.wait(
                ends, timeout=AFTERWARDS_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )


async def _to_client(websocket: WebSocket, line: Line) -> None:
    """To the guest's end.  A client that has gone is the other direction's to notice.

    What the client has sent may still be on its way, and a guest that cannot speak may not listen.
    """
    is_there = True
    while data := await line.read():
        if is_there:
            try:
                await websocket.send_bytes(data)
            except (WebSocketDisconnect, RuntimeError):
                is_there = False


async def _to_guest(websocket: WebSocket, line: Line, end: Callable[[], None] | None) -> None:
    """To the client's end, or until the guest is given up.

    A guest that has closed is not: what it has said before is still read, and ends then.
    """
    has_ended = is_closed = False
    while (data := await _message(websocket)) is not None:
        if not data and end is not None:
            end()
            has_ended = True
        elif has_ended:
            return  # it goes on all the same
        elif data and not is_closed:
            try:
                await line.write(data)
            except ConnectionError:
                is_closed = True
            except OSError:  # of which TimeoutError is one
                return


async def received(websocket: WebSocket) -> bytes | None:
    """The next binary message that is not empty; None when the client has gone."""
    while (data := await _message(websocket)) == b"":
        pass
    return data


async def _message(websocket: WebSocket) -> bytes | None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        if (data := message.get("bytes")) is not None:
            return bytes(data)


async def hang_up(websocket: WebSocket, code: int = NORMAL, reason: str = "") -> None:
    """Close a websocket that the client may have closed already."""
    if websocket.client_state is WebSocketState.CONNECTED:
        with suppress(WebSocketDisconnect, RuntimeError):  # it may go at any moment
            await websocket.close(code, reason)


async def deny(websocket: WebSocket, error: ApiError) -> None:
    """Refuse before the upgrade, with a Status that clients can show."""
    await websocket.send_denial_response(JSONResponse(error.status(), status_code=error.code))
