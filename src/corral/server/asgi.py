"""The API server as an ASGI app: requests, streaming watches, and websockets to VMIs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import lru_cache, partial
from urllib.parse import unquote

import structlog
from starlette.types import Message, Receive, Scope, Send

from corral.api.errors import ApiError, BadRequest, TooLarge
from corral.api.request import USER_HEADERS, Request, Response
from corral.server.app import MAX_BODY_BYTES, ApiServer
from corral.server.authn import websocket_credentials
from corral.server.authn.authenticator import ANONYMOUS
from corral.server.node_proxy.forwarding import Forward
from corral.server.response import compression, pretty
from corral.server.response.errors import error_response
from corral.server.subresources import cdi_upload
from corral.server.transport import watch_socket
from corral.server.transport.connection import ABORT, SEND_AT_ONCE, SendAtOnce
from corral.server.transport.sessions import SessionEnded

log = structlog.get_logger()

_POLICY_VIOLATION = 1008
"""Close code of a websocket: policy violation (RFC 6455)."""
_ANONYMOUS_SENDERS = ("", ANONYMOUS.name)
_END_SECONDS = 1.0
_PER_RESPONSE_HEADERS = ("audit-id", "etag")
"""Headers that differ between responses."""
_CHUNK_BYTES = 256 << 10
"""Large responses are sent in chunks of this size, so that other requests run in between."""

_SLICE_BYTES = 64 << 10
"""Chunks of streams are written in slices of this size: each is copied, and encrypted."""
_SMALL_BYTES = 4 << 10


class App:
    """An ASGI app around a server; requests are authenticated by their credentials."""

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
        # Popped, because they refer to the scope: each request would be a reference cycle.
        send_at_once = scope.get("extensions", {}).pop(SEND_AT_ONCE, None)
        abort = scope.get("extensions", {}).pop(ABORT, None)
        request = request_of(scope, scope["method"])
        request.abort = abort
        response = await self._server.handle(request, partial(read_body, request, receive))
        request.body = b""  # the memory budget no longer counts it
        pretty.format_body(request, response)
        authentication = scope.get("state", {}).get("authentication")
        if authentication is not None and request.sender not in _ANONYMOUS_SENDERS:
            authentication.is_authenticated = True
        if response.status == TooLarge.code:
            response.headers.append(("connection", "close"))  # the rest of the body is not read
        if isinstance(response, Forward):
            await self._forward(request, scope, response, receive, send)
        elif isinstance(response.body, bytes):
            with self._server.fairness.responses.reserve(request.sender, len(response.body)):
                if not _try_send_at_once(send_at_once, response, response.body):
                    await _send_whole(request, response, response.body, send)
        else:
            terminated = _TerminatedSend(send)
            try:
                async with self._server.sessions.while_authenticated(request):
                    await _stream(response, response.body, receive, terminated)
            except SessionEnded:
                await terminated.end()

    async def _forward(
        self, request: Request, scope: Scope, response: Forward, receive: Receive, send: Send
    ) -> None:
        terminated = _TerminatedSend(send)
        try:
            async with self._server.sessions.while_authenticated(request):
                await forward(scope, response, receive, terminated)
        except SessionEnded:
            await terminated.end()

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive an upload: a body of any size, authorized by an upload token."""
        try:
            await self._server.uploads.receive(scope, receive, send)
        except ApiError as error:
            response = error_response(error)
            response.headers.append(("connection", "close"))  # the rest of the body is not read
            assert isinstance(response.body, bytes)
            await send_response(response, response.body, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a websocket; errors are ordinary responses, sent instead of the upgrade."""
        spdy_method = scope.get("state", {}).get("method")  # of SPDY tunnels, which have others
        abort = scope.get("extensions", {}).pop(ABORT, None)
        try:
            scope = websocket_credentials.with_authorization(scope)
            request = request_of(scope, spdy_method or "GET")
            self._server.authenticator.require_own_site(request)
        except ApiError as error:
            await refuse_websocket(error_response(error), send)
            return
        request.abort = abort
        response = await self._server.handle(request)
        if isinstance(response, Forward):
            await self._forward(request, scope, response, receive, send)
        elif isinstance(response.body, AsyncGenerator) and not spdy_method:
            await self._watch(request, scope, response, receive, send)
        else:
            await refuse_websocket(response, send)

    async def _watch(
        self, request: Request, scope: Scope, response: Response, receive: Receive, send: Send
    ) -> None:
        body = response.body
        assert isinstance(body, AsyncGenerator)
        try:
            subprotocol = watch_socket.subprotocol(scope.get("subprotocols") or ())
            if pretty.media_type(response) != "application/json":
                raise BadRequest("a watch over a websocket is in JSON: accept application/json")
        except ApiError as error:
            await body.aclose()
            await refuse_websocket(error_response(error), send)
            return
        terminated = _TerminatedSend(send)
        try:
            async with self._server.sessions.while_authenticated(request):
                await watch_socket.stream(body, subprotocol, receive, terminated)
        except SessionEnded:
            await terminated.end()


async def refuse_websocket(response: Response, send: Send) -> None:
    """Send a response instead of the upgrade; one that is no error says that there is none."""
    if isinstance(response.body, AsyncGenerator):
        await response.body.aclose()
        response.body = b""
    if response.status < 400:
        response = error_response(BadRequest("this path is not a websocket"))
    await send(
        {
            "type": "websocket.http.response.start",
            "status": response.status,
            "headers": _headers(response),
        }
    )
    await send({"type": "websocket.http.response.body", "body": response.body})


class _TerminatedSend:
    """A ``send`` that can end a response or websocket at whatever message it was interrupted."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._ending: Message | None = None

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._ending = {"type": "http.response.body", "body": b""}
        elif kind == "websocket.accept":
            self._ending = {
                "type": "websocket.close",
                "code": _POLICY_VIOLATION,
                "reason": "Unauthorized",
            }
        elif kind == "websocket.close" or (
            kind == "http.response.body" and not message.get("more_body")
        ):
            self._ending = None
        await self._send(message)

    async def end(self) -> None:
        """Send the final message, if one is missing and the client still reads."""
        if self._ending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._send(self._ending)


def _is_user_header(name: str) -> bool:
    return name.startswith(USER_HEADERS)


def request_of(
    scope: Scope, method: str, *, is_user_header: Callable[[str], bool] = _is_user_header
) -> Request:
    """Return a request without its body.

    Lines of one header are joined by commas (RFC 9110, section 5.3); those of headers that name the
    user by newlines, as each is a value.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            # Group names may contain commas, but no header value contains a newline.
            between = "\n" if is_user_header(name) else ", "
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


async def read_body(request: Request, receive: Receive) -> bytes:
    """Return the whole body of a request.

    Raises TooLarge, before reading if Content-Length says so, UnsupportedMedia for a compressed
    body, and BadRequest if the client disconnects: a truncated body may mean something else.
    """
    if request.method in ("GET", "HEAD"):
        return b""
    compression.require_uncompressed(request)
    length = request.headers.get("content-length", "")
    too_large = TooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise too_large
    chunks = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection ended before the request's body did")
        chunks.append(message["body"])
        size += len(message["body"])
        if size > MAX_BODY_BYTES:
            raise too_large
        if not message["more_body"]:
            break
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _headers(response: Response) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in response.headers]


def _try_send_at_once(send_at_once: SendAtOnce | None, response: Response, body: bytes) -> bool:
    """Send a small response in one write, if the HTTP server can; return False if not."""
    if send_at_once is None or len(body) >= compression.MIN_BYTES:
        return False
    specific = [each for each in response.headers if each[0] in _PER_RESPONSE_HEADERS]
    common = (
        [each for each in response.headers if each not in specific]
        if specific
        else response.headers
    )
    head, rest = _common_head(tuple(common)), _encoded_headers(specific)
    if head is None or rest is None:
        return False
    head_bytes = b"%b%bcontent-length: %d\r\n" % (head, rest, len(body))
    return send_at_once(response.status, head_bytes, body)


@lru_cache(maxsize=64)
def _common_head(headers: tuple[tuple[str, str], ...]) -> bytes | None:
    """Return the encoded headers that most responses share."""
    return _encoded_headers(headers)


def _encoded_headers(headers: Sequence[tuple[str, str]]) -> bytes | None:
    """Return headers as on the wire; None if they need the ordinary way of sending.

    That way rejects line breaks in a value, and closes the connection after ``connection: close``.
    """
    head = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if head.count("\r") + head.count("\n") != 2 * len(headers) or "connection: " in head:
        return None
    return head.encode("latin-1", "replace")


async def _send_whole(request: Request, response: Response, body: bytes, send: Send) -> None:
    if compression.should_compress(request, response):
        response.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
        await _pump(response, compression.compressed(body), send)
    else:
        await send_response(response, body, send)


async def send_response(response: Response, body: bytes, send: Send) -> None:
    """Send a response with a whole body, in chunks."""
    headers = _headers(response)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    view = memoryview(body)
    while len(view) > _CHUNK_BYTES:
        chunk, view = bytes(view[:_CHUNK_BYTES]), view[_CHUNK_BYTES:]
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": bytes(view)})


async def _stream(
    response: Response, body: AsyncGenerator[bytes, None], receive: Receive, send: Send
) -> None:
    """Send what the body yields until it ends or the client disconnects; then close it."""
    async with aclosing(body), asyncio.TaskGroup() as group:
        pump = group.create_task(_pump(response, body, send))
        while (await receive())["type"] != "http.disconnect":
            pass  # the rest of a request body, which is ignored
        pump.cancel()


async def _pump(response: Response, body: AsyncGenerator[bytes, None], send: Send) -> None:
    start = {
        "type": "http.response.start",
        "status": response.status,
        "headers": _headers(response),
    }
    await send(start)
    # An empty chunk flushes the head: a client learns that its watch has begun.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    async for chunk in body:
        await _send_chunk(chunk, send)
    await send({"type": "http.response.body", "body": b""})


async def _send_chunk(chunk: bytes, send: Send) -> None:
    """Send a chunk of a stream; a large one has been written to the transport on return.

    So the stream's generator, which counts pending bytes, knows that none of earlier chunks remain.
    """
    for begin in range(0, len(chunk), _SLICE_BYTES):
        part = chunk[begin : begin + _SLICE_BYTES]  # no copy if it is the whole chunk
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if len(chunk) >= _SMALL_BYTES:
        await asyncio.sleep(0)  # it is written in the loop's next iteration
        await send({"type": "http.response.body", "body": b"", "more_body": True})


async def forward(scope: Scope, response: Forward, receive: Receive, send: Send) -> None:
    """Forward to a node's app.  Log its exceptions here: uvicorn only closes the connection."""
    try:
        await response.app(_forwarded(scope, response), _after_body(scope, receive), send)
    except Exception:
        log.exception("request to a node failed", path=response.path)
        raise


def _after_body(scope: Scope, receive: Receive) -> Receive:
    """Return what a node receives: an empty body, for the server has read the request's own.

    Without it a node of another host waits for the rest of the body.
    """
    if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
        return receive
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive_after() -> Message:
        return messages.pop() if messages else await receive()

    return receive_after


def _forwarded(scope: Scope, forward: Forward) -> Scope:
    """Return the scope for the node's app: its path, without the client's credentials."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    return {
        **scope,
        "path": unquote(forward.path),
        "raw_path": forward.path.encode(),
        "query_string": forward.query.encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "state": {**scope.get("state", {}), **forward.state},
    }
