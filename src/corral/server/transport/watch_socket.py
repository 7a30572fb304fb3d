"""Watches over websockets, for browsers: each event is a message.

A browser opens six connections to a server at most, for all its tabs, and a watch takes one of
them; websockets do not count.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from starlette.types import Receive, Send

from corral.api.errors import BadRequest


def subprotocol(offered: Sequence[str]) -> str | None:
    """Return the accepted subprotocol: the client's only one, whatever its name, or none.

    Raises BadRequest for several, of which kube-apiserver accepts none either.
    """
    if len(offered) > 1:
        raise BadRequest(
            "a watch has one subprotocol at most, besides that of a bearer token: "
            f"{len(offered)} are offered"
        )
    return offered[0] if offered else None


async def stream(
    body: AsyncGenerator[bytes, None], accepted: str | None, receive: Receive, send: Send
) -> None:
    """Send each event as a text message until the watch ends or the client disconnects.

    What the client sends is ignored.
    """
    async with aclosing(body), asyncio.TaskGroup() as group:
        pump = group.create_task(_pump(body, accepted, send))
        while (await receive())["type"] != "websocket.disconnect":
            pass
        pump.cancel()


async def _pump(body: AsyncGenerator[bytes, None], accepted: str | None, send: Send) -> None:
    with suppress(OSError):  # the client has disconnected, which ``receive`` reports, too
        await send({"type": "websocket.accept", "subprotocol": accepted})
        async for chunk in body:
            for event in chunk.splitlines(keepends=True):
                await send({"type": "websocket.send", "text": event.decode()})
        await send({"type": "websocket.close", "code": 1000})
