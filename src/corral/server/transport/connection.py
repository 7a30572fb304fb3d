"""uvicorn's HTTP/1.1 and websocket protocols, with limits on the time and size of requests.

An upgrade turns a connection into a websocket or a SPDY tunnel.
"""

import _ssl
import asyncio
import hashlib
import heapq
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

from corral.api.request import Certificate
from corral.server.transport.date_header import date
from corral.server.transport.idle_timeout import IdleTimeout
from corral.server.transport.slow_reader import SlowReaderProtocol, StallTimer
from corral.server.transport.spdy_upgrade import (
    CLOSE_STALL_SECONDS,
    MAX_CLOSE_SECONDS,
    UPGRADE,
    Tunnel,
    detect_dead_peer,
)

REQUEST_SECONDS = 30.0
"""Longest time to send a request, so that slow clients do not occupy connections."""
KEEP_ALIVE_SECONDS = 90
"""Longest idle time of a connection between requests: longer than client-go's."""
MAX_HEAD_BYTES = 64 << 10
"""Limit of a request line with headers, and of chunk headers and trailers of a body."""
LINGER_SECONDS = 1.0
"""Time for which a rejected client may go on sending, so that it reads the error."""
MAX_CONNECTIONS = 16384
"""Each takes some 30 KiB, and a descriptor.  Beyond the limit, the connections that have been idle
longest are closed, unauthenticated ones first: clients open another when they need one."""
SEND_AT_ONCE: Final = "corral.send_at_once"
"""ASGI extension: ``send(status, head, body)`` sends a whole response, or returns False."""
SendAtOnce = Callable[[int, bytes, bytes], bool]
ABORT: Final = "corral.abort"
"""ASGI extension: aborts the connection, with all data that is not sent yet."""
SLOW_BODY: Final = "corral.slow_body"
"""ASGI extension: once called, a body may take any time, as long as it makes progress."""
READ_BYTES = 32 << 10
"""Limit of data decrypted at once; asyncio's own 256 KiB are allocated for each request."""
MAX_BUFFERED_BYTES = 64 << 10
"""Limit of data that waits for the loop's next iteration."""
_INBOX = bytearray(256 << 10)
"""The receive buffer of all TLS connections: its data is read before the loop's next callback.

With a buffer each, a thousand idle watchers would have 256 MiB."""

_HEAD_TOO_LARGE = (
    STATUS_LINE[431] + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: 35\r\n\r\n431 Request Header Fields Too Large"
)


@dataclass(slots=True)
class AuthenticationState:
    """The authentication state of a connection (``state["authentication"]`` of scopes)."""

    is_authenticated: bool = False


class Connection(SlowReaderProtocol, HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits on a request's time and size, and on slow readers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._authentication = AuthenticationState()
        certificate = client_certificate(transport.get_extra_info("ssl_object"))
        self.app_state |= {"certificate": certificate, "authentication": self._authentication}
        _share_inbox(transport)
        _limit_write_buffer(transport)
        self.transport = cast("asyncio.Transport", CoalescingTransport(transport, self.loop))
        self._is_receiving = False
        self._allows_slow_body = False
        self._is_refused = False
        self._has_progressed = False  # the last data completed a head or was of a body
        self._head_bytes = 0
        self._idle_timeout = IdleTimeout(self.loop, self._time_out)
        self._idle_timeout.start(REQUEST_SECONDS)
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_idle_connections()

    def _close_idle_connections(self) -> None:
        """Close a hundredth of the connections, idle ones; if there are none, this one.

        Connections that were never authenticated are closed first, also while they send a request.
        Several at once, because each search goes through all connections.
        """
        candidates = [
            (each._authentication.is_authenticated, each._idle_timeout.due or 0.0, index, each)  # noqa: SLF001
            for index, each in enumerate(self.connections)
            if isinstance(each, Connection) and each is not self and not each._is_responding  # noqa: SLF001
            if not each._is_receiving or not each._authentication.is_authenticated  # noqa: SLF001
            if not each.transport.is_closing()
        ]
        closable = heapq.nsmallest(max(1, MAX_CONNECTIONS // 100), candidates)
        for is_authenticated, _, _, each in closable or [(False, 0.0, 0, self)]:
            if is_authenticated:
                each.transport.close()
            else:  # without TLS's closing handshake, which a stranger may delay
                each.transport.abort()

    @property
    def _is_responding(self) -> bool:
        """True if a response is in progress."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_timeout.close()
        super().connection_lost(exc)
        if self.scope is not None:  # a reference cycle: garbage collections are rare
            self.scope.pop("extensions", None)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._has_progressed:
            self._has_progressed, self._head_bytes = False, 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def _refuse_head(self) -> None:
        """Respond with 431 as Go's server does, and read no more."""
        self._is_refused = True
        cycle: Any = self.cycle
        if not self._is_responding:
            self.transport.write(_HEAD_TOO_LARGE)
            self._idle_timeout.start(LINGER_SECONDS)
        elif cycle.more_body:
            self.transport.close()  # the trailers of its body are too large
        else:
            cycle.keep_alive = False  # earlier requests are answered, then it is closed
            self._idle_timeout.stop()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_receiving = True
        self._allows_slow_body = False
        self._has_progressed = False
        self._head_bytes = 0
        self._idle_timeout.start(REQUEST_SECONDS)

    def on_headers_complete(self) -> None:
        self._has_progressed = True
        if _head_size(self.url, self.headers) > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        super().on_headers_complete()
        cycle: Any = self.cycle
        if cycle is not None and cycle.scope is self.scope:  # else it is an upgrade
            self.scope["headers"] = list(self.headers)  # a copy, without trailers
            self.scope["extensions"] = {
                SEND_AT_ONCE: partial(_send_at_once, cycle),
                ABORT: self.transport.abort,
                SLOW_BODY: self._allow_slow_body,
            }

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        self._has_progressed = True
        if self._allows_slow_body:
            self._idle_timeout.start(REQUEST_SECONDS)
        super().on_body(body)

    def _allow_slow_body(self) -> None:
        self._allows_slow_body = True

    def _time_out(self) -> None:
        if self._allows_slow_body and self.flow.read_paused:  # the app is slow, not the client
            self._idle_timeout.start(REQUEST_SECONDS)
        else:
            self.transport.close()

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        self._is_receiving = False
        if self._is_responding:
            self._idle_timeout.stop()
        else:  # the response was complete before the request
            self._idle_timeout.start(KEEP_ALIVE_SECONDS)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            super().on_response_complete()
        elif not self.transport.is_closing():
            self.flow.resume_reading()
            if not self._is_receiving:
                self._idle_timeout.start(KEEP_ALIVE_SECONDS)

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == UPGRADE or super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        if self._is_responding:
            self.transport.close()  # an earlier response would end up in the stream
            return
        self._cancel_stall_timer()
        self._idle_timeout.close()
        if self._get_upgrade() != UPGRADE:
            super().handle_websocket_upgrade()
            return
        self.connections.discard(self)
        app: Any = self.app
        request: Any = self.scope
        tunnel = Tunnel(app, self.connections, self.tasks, request, self.url)
        tunnel.connection_made(self.transport)
        self.transport.set_protocol(tunnel)


class CoalescingTransport:
    """A transport that sends the writes of one iteration of the loop together.

    uvicorn writes a response's head and body separately; encrypting and sending each by itself is a
    fifth of the cost of a small request.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # called for each response
        self._loop = loop
        self._buffer: list[bytes] = []
        self._size = 0

    def write_and_flush(self, data: bytes) -> None:
        """Write data that is the last of this iteration, and send it at once."""
        self._buffer.append(data)
        self._size += len(data)
        self._flush()

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(data)
        self._size += len(data)
        if (
            self._size >= MAX_BUFFERED_BYTES
        ):  # now, so that the writer is paused if the client does not read
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        buffer, size = self._buffer, self._size
        self._buffer, self._size = [], 0
        if not buffer or self.is_closing():
            return
        if size < MAX_BUFFERED_BYTES:
            self._transport.write(b"".join(buffer))
        else:
            self._transport.writelines(buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _head_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Return the approximate size of a complete head."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _send_at_once(cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> bool:
    """Send a whole response with encoded headers; return False if the connection does not allow it.

    It does what ``cycle.send`` does in the plain case, at a tenth of the cost.
    """
    if cycle.waiting_for_100_continue:  # the announced body may still come
        cycle.keep_alive = False
    if (
        not cycle.keep_alive
        or cycle.disconnected
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    cycle.response_started = cycle.response_complete = True
    transport = cast("CoalescingTransport", cycle.transport)
    dated = b"date: %b\r\n" % date()
    transport.write_and_flush(b"".join((STATUS_LINE[status], dated, head, b"\r\n", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True


def _limit_write_buffer(transport: asyncio.Transport) -> None:
    """Pause writers as soon as the kernel's buffer is full, without a second buffer on top."""
    transport.set_write_buffer_limits(high=1)
    underlying = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if underlying is not None:
        underlying.set_write_buffer_limits(high=1)


def _share_inbox(transport: asyncio.Transport) -> None:
    """Make a TLS connection receive into the shared buffer.

    asyncio has no API for that; if its internals change, each connection has its own buffer.
    """
    tls: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(tls, "_ssl_buffer_view"):
        tls._ssl_buffer, tls._ssl_buffer_view = _INBOX, memoryview(_INBOX)  # noqa: SLF001


class _Handshake(ServerProtocol):
    """A websocket's handshake that leaves the choice of a subprotocol to the app.

    The library rejects names that RFC 6455 does not allow, such as Kubernetes'
    ``SPDY/3.1+portforward.k8s.io``.
    """

    def process_subprotocol(self, headers: Headers) -> None:  # noqa: ARG002
        return None

    def recv_frame(self, frame: Frame) -> None:
        """Ignore pings after the close frame: an answer would count as progress of the reader."""
        if frame.opcode is not Opcode.PING or self.close_sent is None:
            super().recv_frame(frame)


class WebSocket(SlowReaderProtocol, WebSocketsSansIOProtocol):
    """uvicorn's websockets with that handshake, for clients that may be slow.

    Pings keep the connection open, and the kernel detects whether they arrive.  There is no timeout
    for pongs: a pong queues behind data that the client or this server has not read yet.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Handshake(max_size=self.config.ws_max_size, logger=self.logger)
        self.ping_timeout = None
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        detect_dead_peer(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    async def run_asgi(self) -> None:
        self.scope["extensions"][ABORT] = self.transport.abort
        await super().run_asgi()

    def shutdown(self) -> None:
        """Close at the server's end.  uvicorn would send a frame after the client's close frame."""
        if not self.transport.is_closing():
            super().shutdown()

    async def send(self, message: Any) -> None:
        if (
            message["type"] == "websocket.close"
            and message.get("code") == CloseCode.ABNORMAL_CLOSURE
        ):
            self.close_sent = True
            self.transport.close()  # frames must not have this code (RFC 6455 7.4.1)
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # Otherwise uvicorn logs a rejected handshake as an error once the connection is lost.
            self.handshake_complete = not message.get("more_body", False)
        elif message["type"] == "websocket.close" and self.close_timer is not None:
            self.close_timer.cancel()
            stall_timer: Any = StallTimer(self.transport, CLOSE_STALL_SECONDS, self.transport.close)
            self.close_timer = stall_timer
            self._end = self.loop.call_later(MAX_CLOSE_SECONDS, self.transport.abort)


def client_certificate(tls: ssl.SSLObject | None) -> Certificate | None:
    """Return the client's certificate of a connection; None without one."""
    peer: Any = tls.getpeercert() if tls is not None else None
    if not peer:
        return None
    assert tls is not None
    subject = [pair for parts in peer["subject"] for pair in parts]
    return Certificate(
        name=next((value for name, value in reversed(subject) if name == "commonName"), ""),
        groups=tuple(value for name, value in subject if name == "organizationName"),
        begins=ssl.cert_time_to_seconds(peer["notBefore"]),
        ends=ssl.cert_time_to_seconds(peer["notAfter"]),
        fingerprint=hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest(),
        authorities=tuple(hashlib.sha256(each).hexdigest() for each in _verified_chain(tls)[1:]),
    )


def _verified_chain(tls: Any) -> list[bytes]:
    """Return the certificates (DER) of the peer and of its authorities; none if it has resumed."""
    if hasattr(tls, "get_verified_chain"):  # Python 3.13
        return list(tls.get_verified_chain())
    chain = tls._sslobj.get_verified_chain() or ()  # noqa: SLF001 - public from Python 3.13 on
    return [each.public_bytes(_ssl.ENCODING_DER) for each in chain]
