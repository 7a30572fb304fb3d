"""Uploads over HTTP to claims that wait for them (CDI's upload proxy and server).

    HEAD, POST  /NAMESPACE/NAME/UID/upload         responds when the disk is ready
                /NAMESPACE/NAME/UID/upload-async   responds when all content is received

The caller has authorized the request, see ``corral.server.subresources.cdi_upload``.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from corral.aio import own_thread
from corral.node.storage.population.content import from_os_error
from corral.node.storage.population.error import PopulationError
from corral.node.storage.population.partial_content import CHUNK, PartialContent

ASYNC = "upload-async"

log = structlog.get_logger()


@dataclass(eq=False)
class PendingUpload:
    """A claim that accepts an upload.

    received: set when the content is complete.
    failure: resolved with the error message; empty for success.
    """

    content: PartialContent
    received: asyncio.Event = field(default_factory=asyncio.Event)
    failure: "asyncio.Future[str]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    busy: bool = False


class Uploads:
    """An ASGI app that receives uploads; pending uploads by uid of their claim."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingUpload] = {}

    @asynccontextmanager
    async def accept(self, uid: str, content: PartialContent) -> AsyncIterator[PendingUpload]:
        """Accept an upload while the context lasts; the body resolves its ``failure``."""
        upload = self._pending[uid] = PendingUpload(content)
        try:
            yield upload
        except PopulationError as error:
            _fail(upload, str(error))
            raise
        finally:
            del self._pending[uid]
            _fail(upload, "the upload was cancelled")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, _, name, uid, verb = scope["path"].split("/")
        response = await self._respond(Request(scope, receive), name, uid, verb)
        await response(scope, receive, send)

    async def _respond(self, request: Request, name: str, uid: str, verb: str) -> PlainTextResponse:
        upload = self._pending.get(uid)
        if upload is None:
            return PlainTextResponse(f"PVC {name} is not ready for an upload", 503)
        if request.method == "HEAD":
            return PlainTextResponse("")
        # Received content was checked, and may be the volume's disk by now: never write it again.
        if upload.busy or upload.received.is_set():
            return PlainTextResponse(f"PVC {name} is being uploaded to already", 503)
        upload.busy = True
        try:
            await _receive(request, upload.content)
        except (PopulationError, OSError) as error:
            failure = from_os_error(error) if isinstance(error, OSError) else error
            return PlainTextResponse(str(failure), 400)
        finally:
            upload.busy = False
        upload.received.set()
        if verb == ASYNC:
            return PlainTextResponse("")
        outcome = await asyncio.shield(upload.failure)
        return PlainTextResponse(outcome, 400 if outcome else 200)


def _fail(upload: PendingUpload, failure: str) -> None:
    if not upload.failure.done():
        upload.failure.set_result(failure)


async def _receive(request: Request, content: PartialContent) -> None:
    """Write a request body to partial content, with backpressure from the disk.

    Raises PopulationError and OSError.
    """
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    length = request.headers.get("content-length", "")
    expected = int(length) if length.isdecimal() and len(length) < 19 else 0
    content.check_size(expected)
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(content.begin, "upload", "", 0)
    rest = memoryview(b"")

    def read(buffer: memoryview) -> int:
        nonlocal rest
        if not rest:
            chunk = asyncio.run_coroutine_threadsafe(chunks.get(), loop).result()
            if chunk is None:
                return 0
            rest = memoryview(chunk)
        count = min(len(rest), len(buffer))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        return count

    # A thread of its own: a slow client must not occupy one of the shared pool.
    writing = own_thread(content.write_from, read, lambda _: None)
    try:
        await _forward(request, chunks, writing)
    except ClientDisconnect as error:
        raise PopulationError("the client left in the middle of the upload") from error
    finally:
        await asyncio.wait({writing})
    writing.result()
    if expected and content.received != expected:
        raise PopulationError(f"the upload ended after {content.received} of {expected} bytes")
    if not content.received:
        raise PopulationError("the upload is empty")
    await asyncio.to_thread(content.finish)


async def _forward(
    request: Request, chunks: "asyncio.Queue[bytes | None]", writing: "asyncio.Future[None]"
) -> None:
    """Forward a request body to the writing thread, in large chunks, until either ends."""
    pending = bytearray()
    try:
        async for chunk in request.stream():
            pending += chunk
            if len(pending) >= CHUNK:
                await _put(chunks, bytes(pending), writing)
                pending.clear()
            if writing.done():
                return
        if pending:
            await _put(chunks, bytes(pending), writing)
    finally:
        with suppress(asyncio.CancelledError):
            await _put(chunks, None, writing)


async def _put(
    chunks: "asyncio.Queue[bytes | None]", chunk: bytes | None, writing: "asyncio.Future[None]"
) -> None:
    """Put a chunk into the queue; return too when its consumer has ended."""
    putting = asyncio.ensure_future(chunks.put(chunk))
    try:
        await asyncio.wait({putting, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        putting.cancel()
