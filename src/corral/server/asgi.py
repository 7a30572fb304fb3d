"""The API server as an ASGI app: requests, watches that stream, and websockets to machines."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import lru_cache, partial
from urllib.parse import unquote

import structlog
from starlette.types import Message, Receive, Scope, Send

from corral.api.errors import ApiError, BadRequest, TooLarge
from corral.api.request import Request, Response
from corral.server.app import LARGEST_BODY_BYTES, ApiServer
from corral.server.authn.authenticator import ANONYMOUS
from corral.server.node_proxy.forwarding import Forward
from corral.server.response import compression, pretty
from corral.server.response.errors import refusal
from corral.server.subresources import cdi_upload
from corral.server.transport.connection import CUT, SEND_AT_ONCE, SendAtOnce
from corral.server.transport.sessions import SessionEnded

log = structlog.get_logger()

_POLICY = 1008
"""Why a websocket is closed: for a rule (RFC 6455)."""
_NOBODY = ("", ANONYMOUS.name)
_END_SECONDS = 1.0
_OF_ONE = ("audit-id", "etag")
"""Headers that differ from answer to answer."""
_PIECE_BYTES = 256 << 10
"""Large answers are sent in pieces of this size, so that other requests get their turn between."""

_SLICE_BYTES = 64 << 10
"""Pieces of streams are written in slices of this size: each is copied, and encrypted."""
_SMALL_BYTES = 4 << 10


class App:
    """An ASGI app around a server; its requests are authenticated by what they carry."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in cdi_upload.PATHS:
            await self._upload(scope, receive, send)
            return
        # taken out, as it holds the scope: each request would be garbage that has to be found
        send_at_once = scope.get("extensions", {}).pop(SEND_AT_ONCE, None)
        cut = scope.get("extensions", {}).pop(CUT, None)
        request = _request(scope, scope["method"])
        request.cut = cut
        response = await self._server.handle(request, partial(_body, request, receive))
        request.body = b""  # it is not counted any more
        pretty.lay_out(request, response)
        standing = scope.get("state", {}).get("standing")
        if standing is not None and request.sender not in _NOBODY:
            standing.known = True
        if response.status == TooLarge.code:
            response.headers.append(("connection", "close"))  # what follows is not read
        if isinstance(response, Forward):
            await self._forward(request, scope, response, receive, send)
        elif isinstance(response.body, bytes):
            with self._server.turns.answers.hold(request.sender, len(response.body)):
                if not _sent_at_once(send_at_once, response, response.body):
                    await _whole(request, response, response.body, send)
        else:
            last = _Last(send)
            try:
                async with self._server.sessions.hold(request):
                    await _stream(response, response.body, receive, last)
            except SessionEnded:
                await last.end()

    async def _forward(
        self, request: Request, scope: Scope, response: Forward, receive: Receive, send: Send
    ) -> None:
        last = _Last(send)
        try:
            async with self._server.sessions.hold(request):
                await _forward(scope, response, receive, last)
        except SessionEnded:
            await last.end()

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Content comes in a body of any size, under a token of its own."""
        try:
            await self._server.uploads.receive(scope, receive, send)
        except ApiError as error:
            response = refusal(error)
            response.headers.append(("connection", "close"))  # what follows is not read
            assert isinstance(response.body, bytes)
            await _send(response, response.body, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refusals are ordinary answers, sent before the upgrade."""
        method = scope.get("state", {}).get("method", "GET")  # of a tunnel; websockets have but one
        request = _request(scope, method)
        response = await self._server.handle(request)
        if isinstance(response, Forward):
            await self._forward(request, scope, response, receive, send)
            return
        if isinstance(response.body, AsyncGenerator):
            await response.body.aclose()
            response.body = b""
        if response.status < 400:
            response = refusal(BadRequest("this path is not a websocket"))
        await send(
            {
                "type": "websocket.http.response.start",
                "status": response.status,
                "headers": _headers(response),
            }
        )
        await send({"type": "websocket.http.response.body", "body": response.body})


class _Last:
    """Sends, and knows how to end what was begun: what was cut may have been anywhere."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._ending: Message | None = None

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._ending = {"type": "http.response.body", "body": b""}
        elif kind == "websocket.accept":
            self._ending = {"type": "websocket.close", "code": _POLICY, "reason": "Unauthorized"}
        elif kind == "websocket.close" or (
            kind == "http.response.body" and not message.get("more_body")
        ):
            self._ending = None
        await self._send(message)

    async def end(self) -> None:
        """End it properly, if its client still reads."""
        if self._ending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._send(self._ending)


def _request(scope: Scope, method: str) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            # names of groups may hold commas, but no header holds a line's end
            between = "\n" if name.startswith("impersonate-") else ","
            value = f"{headers[name]}{between}{value}"
        headers[name] = value
    return Request(
        method=method,
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        certificate=scope.get("state", {}).get("certificate"),
        address=(scope.get("client") or ("",))[0],
    )


async def _body(request: Request, receive: Receive) -> bytes:
    """What the client sends, whole.

    Raises TooLarge, before reading where the length is told, UnsupportedMedia for one that is
    compressed, and BadRequest for a client that leaves in the middle: half a body may well say
    something else than the whole.
    """
    if request.method in ("GET", "HEAD"):
        return b""
    compression.require_plain(request)
    length = request.headers.get("content-length", "")
    too_large = TooLarge(f"Request entity too large: limit is {LARGEST_BODY_BYTES}")
    if length.isdigit() and int(length) > LARGEST_BODY_BYTES:
        raise too_large
    pieces = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection ended before the request's body did")
        pieces.append(message["body"])
        size += len(message["body"])
        if size > LARGEST_BODY_BYTES:
            raise too_large
        if not message["more_body"]:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _headers(response: Response) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in response.headers]


def _sent_at_once(send_at_once: SendAtOnce | None, response: Response, body: bytes) -> bool:
    """Send a small answer in one go, where the server beneath can; else nothing is sent."""
    if send_at_once is None or len(body) >= compression.SMALLEST_BYTES:
        return False
    own = [each for each in response.headers if each[0] in _OF_ONE]
    alike = [each for each in response.headers if each not in own] if own else response.headers
    head, rest = _head(tuple(alike)), _written(own)
    if head is None or rest is None:
        return False
    told = b"%b%bcontent-length: %d\r\n" % (head, rest, len(body))
    return send_at_once(response.status, told, body)


@lru_cache(maxsize=64)
def _head(headers: tuple[tuple[str, str], ...]) -> bytes | None:
    """What most answers have in common."""
    return _written(headers)


def _written(headers: Sequence[tuple[str, str]]) -> bytes | None:
    """Headers as they are on the wire.

    None for what would end a line, which is refused on the ordinary way, and for what closes the
    connection, which only that way knows how to do.
    """
    head = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if head.count("\r") + head.count("\n") != 2 * len(headers) or "connection: " in head:
        return None
    return head.encode("latin-1", "replace")


async def _whole(request: Request, response: Response, body: bytes, send: Send) -> None:
    if compression.wanted(request, response):
        response.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
        await _pump(response, compression.compressed(body), send)
    else:
        await _send(response, body, send)


async def _send(response: Response, body: bytes, send: Send) -> None:
    headers = _headers(response)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    view = memoryview(body)
    while len(view) > _PIECE_BYTES:
        piece, view = bytes(view[:_PIECE_BYTES]), view[_PIECE_BYTES:]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": bytes(view)})


async def _stream(
    response: Response, body: AsyncGenerator[bytes, None], receive: Receive, send: Send
) -> None:
    """Send what the body yields until it ends or the client leaves; then close it."""
    async with aclosing(body), asyncio.TaskGroup() as group:
        pump = group.create_task(_pump(response, body, send))
        while (await receive())["type"] != "http.disconnect":
            pass  # the rest of a body that nobody asked for
        pump.cancel()


async def _pump(response: Response, body: AsyncGenerator[bytes, None], send: Send) -> None:
    start = {
        "type": "http.response.start",
        "status": response.status,
        "headers": _headers(response),
    }
    await send(start)
    # an empty piece sends the head at once: a client learns that its watch has begun
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    async for piece in body:
        await _send_piece(piece, send)
    await send({"type": "http.response.body", "body": b""})


async def _send_piece(piece: bytes, send: Send) -> None:
    """Send a piece of a stream; what is not small is out of our hands afterwards.

    So whoever makes the pieces knows what waits: that nothing else does.
    """
    for begin in range(0, len(piece), _SLICE_BYTES):
        part = piece[begin : begin + _SLICE_BYTES]  # itself, where it is the whole
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if len(piece) >= _SMALL_BYTES:
        await asyncio.sleep(0)  # it is written in the loop's next turn
        await send({"type": "http.response.body", "body": b"", "more_body": True})


async def _forward(scope: Scope, forward: Forward, receive: Receive, send: Send) -> None:
    """Let a node answer.  What fails there is logged here: uvicorn only ends the connection."""
    try:
        await forward.app(_forwarded(scope, forward), receive, send)
    except Exception:
        log.exception("a node failed at a request", path=forward.path)
        raise


def _forwarded(scope: Scope, forward: Forward) -> Scope:
    """The request as the next app gets it: its path, and none of the client's credentials."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    return {
        **scope,
        "path": unquote(forward.path),
        "raw_path": forward.path.encode(),
        "query_string": forward.query.encode("latin-1"),
        "root_path": "",
        "headers": headers,
    }
