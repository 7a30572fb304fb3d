"""Sockets: an ASGI app over HTTPS, inside the loop that is already running.

uvicorn's protocols do the work.  Its own ``Server`` is not used: it takes the process's signals,
and ends the process when a port is taken.
"""

import asyncio
import errno
import hashlib
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.server import ServerProtocol

from corral.api.wire import Certificate
from corral.server.tunnel import UNREAD_SECONDS, UPGRADE, Tunnel

REQUEST_SECONDS = 30.0
"""How long a client may take to send a request, so that slow ones do not hold connections."""
KEEP_ALIVE_SECONDS = 90
"""How long a connection may wait for its next request: longer than client-go keeps one idle."""
HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 5.0
LARGEST_HEAD_BYTES = 64 << 10
MOST_CONNECTIONS = 16384
"""Each takes some 30 KiB, and a descriptor.  Where there are more, those that have waited longest
for their next request are closed: clients open another when they need one."""
GATHERED_BYTES = 64 << 10
"""What is written and not sent before the loop's next turn, at most."""
READ_BYTES = 32 << 10
"""What is decrypted at once; asyncio's own 256 KiB are allocated anew for each request."""
_INBOX = bytearray(256 << 10)
"""Where TLS connections receive: what came is taken out before the loop turns to the next one.

Each would have such a buffer of its own otherwise, and a thousand idle watchers 256 MiB."""

_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's; Python has no name for it


class ServeError(Exception):
    """The server cannot listen; the message says where, why, and what to do."""


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on a request's time and size, and on who does not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state["certificate"] = _shown(transport.get_extra_info("ssl_object"))
        _share_inbox(transport)
        self.transport = cast("asyncio.Transport", _Gathering(transport, self.loop))
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._expect()

    def _make_room(self) -> None:
        """Close a connection that waits for its next request; this one where there is none."""
        ends = {
            each: each.timeout_keep_alive_task.when()
            for each in self.connections
            if isinstance(each, _Protocol) and each.timeout_keep_alive_task is not None
        }
        first = min(ends, key=ends.__getitem__, default=self)
        first.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._received()
        self._was_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # not close(): that would wait until all is read
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._was_read()
        super().resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._expect()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        self._received()
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == UPGRADE or super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        before: Any = self.cycle
        if before is not None and not before.response_complete:
            self.transport.close()  # its answer would come in the midst of the stream
            return
        self._was_read()
        if self._get_upgrade() != UPGRADE:
            super().handle_websocket_upgrade()
            return
        self.connections.discard(self)
        app: Any = self.app
        request: Any = self.scope
        tunnel = Tunnel(app, self.connections, self.tasks, request, self.url)
        tunnel.connection_made(self.transport)
        self.transport.set_protocol(tunnel)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > LARGEST_HEAD_BYTES:
            raise ValueError("the request's head is too large")  # the parser makes it a 400

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _received(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.close()


class _Gathering:
    """A transport that sends what is written in one turn of the loop together.

    An answer's head and body are written one after the other; sent apart, each would be encrypted
    and handed to the kernel for itself, which is a fifth of what a small request costs.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)
        self._size += len(data)
        if self._size >= GATHERED_BYTES:  # now, so that who writes much learns who does not read
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        written, size = self._written, self._size
        self._written, self._size = [], 0
        if not written or self._transport.is_closing():
            return
        if size < GATHERED_BYTES:
            self._transport.write(b"".join(written))
        else:
            self._transport.writelines(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


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


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's websockets with that handshake."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Handshake(max_size=self.config.ws_max_size, logger=self.logger)


def tls_context(certificate: Path, key: Path, clients: Path | None = None) -> ssl.SSLContext:
    """TLS as the server speaks it; clients may show what authorities in ``clients`` have issued.

    A certificate that has ended passes here, so that its owner is told by an answer (401); one of
    a strange authority ends the handshake.  Raises ServeError for files that cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= _NO_CHECK_TIME
    except (OSError, ssl.SSLError) as error:
        raise ServeError(f"{certificate} and {key} cannot be used: {error}") from error
    return context


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


@asynccontextmanager
async def listening(
    app: ASGIApp, host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncGenerator[tuple[str, int], None]:
    """Serve an app while the block lasts; the value is the address, with port 0 resolved.

    At the end requests that are being answered get a moment to finish.  Whoever streams without
    end must be told before: the store's watches end when the store is closed.
    """
    try:
        server = await _start(app, tls, state := ServerState(), host=host, port=port)
    except OSError as error:
        raise ServeError(_cannot_listen(host, port, error)) from error
    try:
        address = server.sockets[0].getsockname()
        yield address[0], address[1]
    finally:
        server.close()
        await _end(state)


@asynccontextmanager
async def listening_on(
    app: ASGIApp, bound: socket.socket, tls: ssl.SSLContext | None
) -> AsyncGenerator[None, None]:
    """Serve an app on a socket that is bound already, as ``listening`` does; it is closed after."""
    server = await _start(app, tls, state := ServerState(), sock=bound)
    try:
        yield
    finally:
        server.close()
        await _end(state)


async def _start(
    app: ASGIApp, tls: ssl.SSLContext | None, state: ServerState, **where: Any
) -> asyncio.Server:
    config: Any = Config(
        app,
        interface="asgi3",
        lifespan="off",
        http=_Protocol,
        ws=_WebSocket,
        ws_max_size=1 << 20,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    config.load()
    SSLProtocol.max_size = READ_BYTES
    return await asyncio.get_running_loop().create_server(
        lambda: _Protocol(config=config, server_state=state, app_state={}),
        **where,
        ssl=tls,
        backlog=1024,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is taken by another program; stop it, or choose another with --bind"
    if error.errno == errno.EACCES:
        return f"{host}:{port} may not be used by this user; choose a port above 1023 with --bind"
    return f"{host}:{port} cannot be listened on: {error.strerror or error}"


async def _end(state: ServerState) -> None:
    for connection in tuple(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(tuple(state.tasks), timeout=SHUTDOWN_SECONDS)
    unfinished = tuple(state.tasks)
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished, timeout=SHUTDOWN_SECONDS)
    for connection in tuple(state.connections):
        with suppress(AttributeError):  # a connection that was never made has no transport
            connection.transport.close()
