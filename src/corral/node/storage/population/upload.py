"""Uploads: claims wait here, and clients bring their content over HTTP (CDI's upload proxy).

    HEAD, POST  /NAMESPACE/NAME/UID/upload         answered when the disk is there
                /NAMESPACE/NAME/UID/upload-async   answered when all has arrived

Who may reach this was checked before, see ``corral.server.subresources.cdi_upload``.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from corral.aio import apart
from corral.node.storage.population.content import of_disk
from corral.node.storage.population.error import NotFilled
from corral.node.storage.population.partial_content import PIECE, Part

ASYNC = "upload-async"

log = structlog.get_logger()


@dataclass(eq=False)
class Slot:
    """A claim that waits for its content.

    arrived: set when all of it is in the part.
    outcome: what became of it: an empty text, or why it was not taken.
    """

    part: Part
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: "asyncio.Future[str]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    busy: bool = False


class Uploads:
    """The claims that wait, by uid; an ASGI app for those who bring what they wait for."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}

    @asynccontextmanager
    async def waiting(self, uid: str, part: Part) -> AsyncIterator[Slot]:
        """While this lasts, content for a claim is taken; set the slot's outcome inside."""
        slot = self._slots[uid] = Slot(part)
        try:
            yield slot
        except NotFilled as error:
            _settle(slot, str(error))
            raise
        finally:
            del self._slots[uid]
            _settle(slot, "the upload was broken off")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, _, name, uid, way = scope["path"].split("/")
        response = await self._answer(Request(scope, receive), name, uid, way)
        await response(scope, receive, send)

    async def _answer(self, request: Request, name: str, uid: str, way: str) -> PlainTextResponse:
        slot = self._slots.get(uid)
        if slot is None:
            return PlainTextResponse(f"PVC {name} is not ready for an upload", 503)
        if request.method == "HEAD":
            return PlainTextResponse("")
        # What has arrived may be the volume's own file already, and was looked at.
        if slot.busy or slot.arrived.is_set():
            return PlainTextResponse(f"PVC {name} is being uploaded to already", 503)
        slot.busy = True
        try:
            await _receive(request, slot.part)
        except (NotFilled, OSError) as error:
            failure = of_disk(error) if isinstance(error, OSError) else error
            return PlainTextResponse(str(failure), 400)
        finally:
            slot.busy = False
        slot.arrived.set()
        if way == ASYNC:
            return PlainTextResponse("")
        fault = await asyncio.shield(slot.outcome)
        return PlainTextResponse(fault, 400 if fault else 200)


def _settle(slot: Slot, outcome: str) -> None:
    if not slot.outcome.done():
        slot.outcome.set_result(outcome)


async def _receive(request: Request, part: Part) -> None:
    """Take a body into a part, as fast as the disk takes it.  Raises NotFilled, OSError."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    length = request.headers.get("content-length", "")
    wanted = int(length) if length.isdecimal() and len(length) < 19 else 0
    part.check(wanted)
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(part.begin, "upload", "", 0)
    rest = memoryview(b"")

    def read(buffer: memoryview) -> int:
        nonlocal rest
        if not rest:
            piece = asyncio.run_coroutine_threadsafe(pieces.get(), loop).result()
            if piece is None:
                return 0
            rest = memoryview(piece)
        count = min(len(rest), len(buffer))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        return count

    # A thread of its own: a client may take its time, and others need one for a moment.
    writing = apart(part.take, read, lambda _: None)
    try:
        await _pass_on(request, pieces, writing)
    except ClientDisconnect as error:
        raise NotFilled("the client left in the middle of the upload") from error
    finally:
        await asyncio.wait({writing})
    writing.result()
    if wanted and part.received != wanted:
        raise NotFilled(f"the upload ended after {part.received} of {wanted} bytes")
    if not part.received:
        raise NotFilled("the upload is empty")
    await asyncio.to_thread(part.finish)


async def _pass_on(
    request: Request, pieces: "asyncio.Queue[bytes | None]", writing: "asyncio.Future[None]"
) -> None:
    """Pass a body to who writes it, in pieces worth a thread's turn, while somebody does."""
    pending = bytearray()
    try:
        async for chunk in request.stream():
            pending += chunk
            if len(pending) >= PIECE:
                await _put(pieces, bytes(pending), writing)
                pending.clear()
            if writing.done():
                return
        if pending:
            await _put(pieces, bytes(pending), writing)
    finally:
        with suppress(asyncio.CancelledError):
            await _put(pieces, None, writing)


async def _put(
    pieces: "asyncio.Queue[bytes | None]", piece: bytes | None, writing: "asyncio.Future[None]"
) -> None:
    """Wait for a place in the queue, or for the end of who empties it."""
    putting = asyncio.ensure_future(pieces.put(piece))
    try:
        await asyncio.wait({putting, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        putting.cancel()
