"""One connection of a client: HTTP/1.1 with bounds on what it takes, and what it may become.

uvicorn's protocols do the work.
"""

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
from corral.server.transport.idle_timeout import Patience
from corral.server.transport.slow_reader import Unread, Uptake
from corral.server.transport.spdy_upgrade import (
    LEAVING_SECONDS,
    LONGEST_LEAVING_SECONDS,
    UPGRADE,
    Tunnel,
    watch_over,
)
from corral.server.transport.write_coalescing import Gathering

REQUEST_SECONDS = 30.0
"""How long a client may take to send a request, so that slow ones do not hold connections."""
KEEP_ALIVE_SECONDS = 90
"""How long a connection may wait for its next request: longer than client-go keeps one idle."""
LARGEST_HEAD_BYTES = 64 << 10
"""Of the line and the headers of a request, and of what else is sent that is not of a body."""
LINGER_SECONDS = 1.0
"""So long a client that was refused while it sends may go on, so that it reads why."""
MOST_CONNECTIONS = 16384
"""Each takes some 30 KiB, and a descriptor.  Where there are more, those that have waited longest
for a request are closed, strangers' before users': clients open another when they need one."""
SEND_AT_ONCE: Final = "corral.send_at_once"
"""An extension of ASGI: ``send(status, head, body)`` sends a whole answer, or says False."""
SendAtOnce = Callable[[int, bytes, bytes], bool]
CUT: Final = "corral.cut"
"""An extension of ASGI: tears the connection down, with all that waits to be sent."""
UNHURRIED: Final = "corral.unhurried"
"""An extension of ASGI: once called, a body may take as long as it comes on."""
READ_BYTES = 32 << 10
"""What is decrypted at once; asyncio's own 256 KiB are allocated anew for each request."""
_INBOX = bytearray(256 << 10)
"""Where TLS connections receive: what came is taken out before the loop turns to the next one.

Each would have such a buffer of its own otherwise, and a thousand idle watchers 256 MiB."""

_HEAD_TOO_LARGE = (
    STATUS_LINE[431] + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: 35\r\n\r\n431 Request Header Fields Too Large"
)


@dataclass(slots=True)
class Standing:
    """Whether a request of a connection was authenticated; ``state["standing"]`` of its scopes."""

    is_authenticated: bool = False


class Connection(Unread, HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on a request's time and size, and on who does not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._standing = Standing()
        certificate = _shown(transport.get_extra_info("ssl_object"))
        self.app_state |= {"certificate": certificate, "standing": self._standing}
        _share_inbox(transport)
        _hold_little(transport)
        self.transport = cast("asyncio.Transport", Gathering(transport, self.loop))
        self._is_receiving = False
        self._is_unhurried = False
        self._is_refused = False
        self._has_moved = False  # what came last was of a request, not of a head that grows
        self._head_bytes = 0
        self._patience = Patience(self.loop, self._lose_patience)
        self._patience.begin(REQUEST_SECONDS)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Close some connections that wait for a request; this one where there is none.

        Those go first that have been nobody's yet: strangers that wait push out no user.  To find
        them takes a look at all, so that is not done for each newcomer.
        """
        waiting = [
            (each._standing.is_authenticated, each._patience.due or 0.0, index, each)  # noqa: SLF001
            for index, each in enumerate(self.connections)
            if isinstance(each, Connection) and each is not self and not each._is_asked  # noqa: SLF001
            if not each._is_receiving or not each._standing.is_authenticated  # noqa: SLF001
            if not each.transport.is_closing()
        ]
        first = heapq.nsmallest(max(1, MOST_CONNECTIONS // 100), waiting)
        for known, _, _, each in first or [(False, 0.0, 0, self)]:
            if known:
                each.transport.close()
            else:  # at once: a stranger need not answer a farewell
                each.transport.abort()

    @property
    def _is_asked(self) -> bool:
        """Whether a request is being answered."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.close()
        super().connection_lost(exc)
        if self.scope is not None:  # it leads back here, and garbage is looked for seldom
            self.scope.pop("extensions", None)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._has_moved:
            self._has_moved, self._head_bytes = False, 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > LARGEST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def _refuse_head(self) -> None:
        """Answer as Go's server does, and hear no more."""
        self._is_refused = True
        cycle: Any = self.cycle
        if not self._is_asked:
            self.transport.write(_HEAD_TOO_LARGE)
            self._patience.begin(LINGER_SECONDS)
        elif cycle.more_body:
            self.transport.close()  # what is behind its body is too large
        else:
            cycle.keep_alive = False  # what was asked before is answered, and that is all
            self._patience.end()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_receiving = True
        self._is_unhurried = False
        self._has_moved = False
        self._head_bytes = 0
        self._patience.begin(REQUEST_SECONDS)

    def on_headers_complete(self) -> None:
        self._has_moved = True
        if _head_size(self.url, self.headers) > LARGEST_HEAD_BYTES:
            self._refuse_head()
            return
        super().on_headers_complete()
        cycle: Any = self.cycle
        if cycle is not None and cycle.scope is self.scope:  # else it is to be upgraded
            self.scope["headers"] = list(self.headers)  # what comes behind a body is none of them
            self.scope["extensions"] = {
                SEND_AT_ONCE: partial(_send_at_once, cycle),
                CUT: self.transport.abort,
                UNHURRIED: self._take_time,
            }

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        self._has_moved = True
        if self._is_unhurried:
            self._patience.begin(REQUEST_SECONDS)
        super().on_body(body)

    def _take_time(self) -> None:
        self._is_unhurried = True

    def _lose_patience(self) -> None:
        if self._is_unhurried and self.flow.read_paused:  # it is we who are slow
            self._patience.begin(REQUEST_SECONDS)
        else:
            self.transport.close()

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        self._is_receiving = False
        if self._is_asked:
            self._patience.end()
        else:  # it was answered before it was all here
            self._patience.begin(KEEP_ALIVE_SECONDS)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            super().on_response_complete()
        elif not self.transport.is_closing():
            self.flow.resume_reading()
            if not self._is_receiving:
                self._patience.begin(KEEP_ALIVE_SECONDS)

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == UPGRADE or super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        if self._is_asked:
            self.transport.close()  # its answer would come in the midst of the stream
            return
        self._was_read()
        self._patience.close()
        if self._get_upgrade() != UPGRADE:
            super().handle_websocket_upgrade()
            return
        self.connections.discard(self)
        app: Any = self.app
        request: Any = self.scope
        tunnel = Tunnel(app, self.connections, self.tasks, request, self.url)
        tunnel.connection_made(self.transport)
        self.transport.set_protocol(tunnel)


def _head_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """What a head takes that has come whole, nearly."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _send_at_once(cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> bool:
    """Send a whole answer, its headers as they are on the wire; False where that cannot be done.

    This is what ``cycle.send`` does in the plain case, at a tenth of its cost.
    """
    if cycle.waiting_for_100_continue:  # nobody knows whether the body that was announced comes
        cycle.keep_alive = False
    if (
        not cycle.keep_alive
        or cycle.disconnected
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    cycle.response_started = cycle.response_complete = True
    transport = cast("Gathering", cycle.transport)
    transport.write_whole(b"".join((STATUS_LINE[status], head, b"\r\n", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True


def _hold_little(transport: asyncio.Transport) -> None:
    """Let whoever writes wait as soon as the kernel's buffer is full: ours would come on top."""
    transport.set_write_buffer_limits(high=1)
    beneath = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if beneath is not None:
        beneath.set_write_buffer_limits(high=1)


def _share_inbox(transport: asyncio.Transport) -> None:
    """Let a TLS connection receive in the buffer of all.

    asyncio has no door for that; where its insides are others, each has a buffer of its own.
    """
    tls: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(tls, "_ssl_buffer_view"):
        tls._ssl_buffer, tls._ssl_buffer_view = _INBOX, memoryview(_INBOX)  # noqa: SLF001


class _Handshake(ServerProtocol):
    """A websocket's handshake that leaves the choice of a subprotocol to the app.

    The library refuses names that RFC 6455 does not allow, but Kubernetes has such:
    ``SPDY/3.1+portforward.k8s.io``.
    """

    def process_subprotocol(self, headers: Headers) -> None:  # noqa: ARG002
        return None

    def recv_frame(self, frame: Frame) -> None:
        """Once all is said a ping is not answered: that would be taken for what is still read."""
        if frame.opcode is not Opcode.PING or self.close_sent is None:
            super().recv_frame(frame)


class WebSocket(Unread, WebSocketsSansIOProtocol):
    """uvicorn's websockets with that handshake, for clients that may be slow.

    Its pings keep the way open, and the kernel sees whether they arrive.  No answer is waited for:
    it stands behind what is not read yet, by the client or by us.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Handshake(max_size=self.config.ws_max_size, logger=self.logger)
        self.ping_timeout = None
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        watch_over(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends.  uvicorn says so to who has said farewell, too, which it may not."""
        if not self.transport.is_closing():
            super().shutdown()

    async def send(self, message: Any) -> None:
        if (
            message["type"] == "websocket.close"
            and message.get("code") == CloseCode.ABNORMAL_CLOSURE
        ):
            self.close_sent = True
            self.transport.close()  # without a frame: no frame may hold this code (RFC 6455 7.4.1)
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # uvicorn takes a refusal for no answer until the connection is lost, and logs that.
            self.handshake_complete = not message.get("more_body", False)
        elif message["type"] == "websocket.close" and self.close_timer is not None:
            self.close_timer.cancel()
            leaving: Any = Uptake(self.transport, LEAVING_SECONDS, self.transport.close)
            self.close_timer = leaving
            self._end = self.loop.call_later(LONGEST_LEAVING_SECONDS, self.transport.abort)


def _shown(tls: ssl.SSLObject | None) -> Certificate | None:
    """The client's certificate of a connection, as Kubernetes reads it."""
    told: Any = tls.getpeercert() if tls is not None else None
    if not told:
        return None
    assert tls is not None
    subject = [pair for parts in told["subject"] for pair in parts]
    return Certificate(
        name=next((value for name, value in reversed(subject) if name == "commonName"), ""),
        groups=tuple(value for name, value in subject if name == "organizationName"),
        begins=ssl.cert_time_to_seconds(told["notBefore"]),
        ends=ssl.cert_time_to_seconds(told["notAfter"]),
        fingerprint=hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest(),
    )
