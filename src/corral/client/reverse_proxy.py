"""Passes requests and websockets on to another server over TLS, as an ASGI app.

The API server reaches the kubelets of other hosts by it.  Bodies stream both ways.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

import httpx2
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from corral import sockets
from corral.api.encoding import encode
from corral.api.errors import ApiError, Unavailable
from corral.api.request import USER_HEADERS
from corral.failures import describe

CONNECT_SECONDS: Final = 10.0
GONE_SECONDS: Final = 60
"""Time without acknowledgement after which the connection to the other server counts as lost."""
LARGEST_MESSAGE: Final = 1 << 20
_CUT: Final = 1006
"""The code of a websocket that ended without a close frame (RFC 6455, 7.4.1)."""
_HOP_BY_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"authorization", b"cookie"),
    }
)
"""Headers that are about one connection (RFC 9110, 7.6.1), and credentials of the client."""
_OURS: Final = _HOP_BY_HOP | {b"date"}
"""Headers of a response that this server writes itself."""


class ReverseProxy:
    """One server behind this one.

    ``what`` names it in errors; ``tls`` trusts it and holds the credentials that it is shown;
    ``prefix`` goes before each path; ``headers`` returns further headers of requests.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        *,
        what: str,
        prefix: str = "",
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._url = f"https://{authority}{prefix}"
        self._websocket_url = f"wss://{authority}{prefix}"
        self._tls = tls
        self._what = what
        self._headers = headers
        self._client = httpx2.AsyncClient(
            verify=tls,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def aclose(self) -> None:
        """End the idle connections."""
        await self._client.aclose()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_body = scope["method"] not in ("GET", "HEAD")
        request = self._client.build_request(
            scope["method"],
            self._url + _target(scope),
            headers=[*_passed(scope["headers"]), *self._headers().items()],
            content=_body(receive) if has_body else None,
        )
        try:
            answer = await self._client.send(request, stream=True)
        except (httpx2.TransportError, ssl.SSLError) as error:
            await _refuse(self._unreachable(error), send, websocket=False)
            return
        pump = asyncio.create_task(_answer(answer, send))
        watch = asyncio.create_task(asyncio.Event().wait() if has_body else _gone(receive))
        try:
            await asyncio.wait({pump, watch}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                await pump
        finally:
            for task in (pump, watch):
                task.cancel()
            await asyncio.gather(pump, watch, return_exceptions=True)
            await answer.aclose()

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        try:
            connection = await connect(
                self._websocket_url + _target(scope),
                additional_headers=[*_handshake_headers(scope), *self._headers().items()],
                create_connection=_Lenient,
                ssl=self._tls,
                compression=None,
                user_agent_header=None,
                open_timeout=CONNECT_SECONDS,
                ping_interval=None,
                max_size=LARGEST_MESSAGE,
                proxy=None,
            )
        except InvalidStatus as refusal:
            response = refusal.response
            body = bytes(response.body or b"")
            await _send_whole(response.status_code, body, send, "websocket.http.response")
            return
        except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError) as error:
            await _refuse(self._unreachable(error), send, websocket=True)
            return
        opened = connection.transport.get_extra_info("socket")
        sockets.keep_alive(opened, GONE_SECONDS)
        sockets.set_user_timeout(opened, GONE_SECONDS)
        try:
            await send({"type": "websocket.accept", "subprotocol": connection.subprotocol})
            await _carry(connection, receive, send)
        finally:
            await connection.close()

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self._what} at {self._url} cannot be reached: {describe(error)}")


class _Lenient(ClientConnection):
    """A websocket that takes the subprotocol which the server chose.

    The library refuses names that RFC 6455 does not allow, but Kubernetes has such:
    ``SPDY/3.1+portforward.k8s.io``.
    """

    def __init__(self, protocol: ClientProtocol, **options: Any) -> None:
        def chosen(headers: Headers) -> Subprotocol | None:
            name = headers.get("Sec-WebSocket-Protocol")
            return None if name is None else Subprotocol(name)

        protocol.process_subprotocol = chosen  # type: ignore[method-assign]
        super().__init__(protocol, **options)


def _target(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _passed(headers: Any) -> list[tuple[str, str]]:
    """Return the headers to pass on: a client of this server names no user to the one behind."""
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.lower() not in _HOP_BY_HOP
        and name.lower() != b"content-length"
        and not name.decode("latin-1").lower().startswith(USER_HEADERS)
    ]


def _handshake_headers(scope: Scope) -> list[tuple[str, str]]:
    """Return the headers of a websocket's handshake, with the subprotocols that the client offers.

    The library's own parameter refuses names such as ``SPDY/3.1+portforward.k8s.io``.
    """
    offered = ", ".join(scope.get("subprotocols") or ())
    passed = _passed(each for each in scope["headers"] if not each[0].startswith(b"sec-websocket"))
    return [*passed, *([("Sec-WebSocket-Protocol", offered)] if offered else [])]


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        if body := message.get("body"):
            yield body
        if not message.get("more_body"):
            return


async def _gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(answer: httpx2.Response, send: Send) -> None:
    headers = [
        (name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _OURS
    ]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    with suppress(httpx2.TransportError):  # the client sees a body that ends early
        async for chunk in answer.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _carry(connection: ClientConnection, receive: Receive, send: Send) -> None:
    """Pass messages both ways until either side has closed."""
    inward = asyncio.create_task(_to_server(connection, receive))
    outward = asyncio.create_task(_to_client(connection, send))
    try:
        await asyncio.wait({inward, outward}, return_when=asyncio.FIRST_COMPLETED)
        if inward.done() and not outward.done():
            await connection.close()
            return
        close = connection.protocol.close_rcvd
        with suppress(RuntimeError):  # the client has gone as well
            await send(
                {
                    "type": "websocket.close",
                    "code": close.code if close is not None else _CUT,
                    "reason": close.reason if close is not None else "",
                }
            )
    finally:
        for task in (inward, outward):
            task.cancel()
        await asyncio.gather(inward, outward, return_exceptions=True)


async def _to_server(connection: ClientConnection, receive: Receive) -> None:
    while True:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] != "websocket.receive":
            return
        data = message.get("bytes")
        try:
            await connection.send(message["text"] if data is None else data)
        except ConnectionClosed:
            return


async def _to_client(connection: ClientConnection, send: Send) -> None:
    with suppress(ConnectionClosed, RuntimeError):
        async for message in connection:
            key = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", key: message})


async def _refuse(error: ApiError, send: Send, *, websocket: bool) -> None:
    kind = "websocket.http.response" if websocket else "http.response"
    await _send_whole(error.code, encode(error.status()), send, kind)


async def _send_whole(status: int, body: bytes, send: Send, kind: str) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
