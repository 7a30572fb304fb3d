"""Listening sockets: an ASGI app over HTTPS, in the running event loop.

uvicorn's own ``Server`` is not used: it installs signal handlers, and exits the process when a port
is in use.
"""

import asyncio
import errno
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from corral.server.transport.connection import KEEP_ALIVE_SECONDS, READ_BYTES, Connection, WebSocket
from corral.server.transport.date_header import date

HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 5.0
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's; Python has no name for it


class ListenOptions(NamedTuple):
    """The options of a command that choose where it listens, for messages."""

    address: str = "--bind"
    port: str = "--bind"


_BIND = ListenOptions()


class ServeError(Exception):
    """The server cannot listen; the message says where, why, and what to do."""


def bare_context() -> ssl.SSLContext:
    """Return TLS as servers here speak it, without a certificate yet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def trust_clients(context: ssl.SSLContext, authorities: str) -> None:
    """Let clients show certificates of further authorities (PEM).  Raises ssl.SSLError."""
    context.load_verify_locations(cadata=authorities)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _NO_CHECK_TIME


def tls_context(certificate: Path, key: Path, clients: Path | None = None) -> ssl.SSLContext:
    """Return the server's TLS context; ``clients`` are the CAs of optional client certificates.

    An expired certificate passes the handshake, so that its client gets a 401; one of another CA
    ends the handshake.  Raises ServeError for unusable files.
    """
    context = bare_context()
    try:
        context.load_cert_chain(certificate, key)
        if clients is not None:
            trust_clients(context, clients.read_text())
    except (OSError, ssl.SSLError) as error:
        raise ServeError(f"{certificate} and {key} cannot be used: {error}") from error
    return context


class _DatedState(ServerState):
    """uvicorn's state of a server; its headers of all responses, which it keeps, have the time."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"date", date())]

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Ignore the list that uvicorn's constructor sets."""


@asynccontextmanager
async def listening(
    app: ASGIApp,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    *,
    options: ListenOptions = _BIND,
) -> AsyncGenerator[tuple[str, int], None]:
    """Serve an app while the block lasts; the value is the address, with port 0 resolved.

    At the end, responses in progress get SHUTDOWN_SECONDS to finish.  Callers end endless streams
    before: the store's watches end when the store is closed.
    """
    try:
        server = await _start(app, tls, state := _DatedState(), host=host, port=port)
    except OSError as error:
        raise ServeError(_cannot_listen(host, port, error, options)) from error
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
    """Serve an app on a bound socket, as ``listening`` does; the socket is closed at the end."""
    server = await _start(app, tls, state := _DatedState(), sock=bound)
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
        http=Connection,
        ws=WebSocket,
        ws_max_size=1 << 20,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # uvicorn's own needs its Server; the state has it
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    config.load()
    SSLProtocol.max_size = READ_BYTES
    return await asyncio.get_running_loop().create_server(
        lambda: Connection(config=config, server_state=state, app_state={}),
        **where,
        ssl=tls,
        backlog=1024,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )


def _cannot_listen(host: str, port: int, error: OSError, options: ListenOptions) -> str:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is taken by another program; stop it, or choose another with {options.port}"
        )
    if error.errno == errno.EACCES:
        why = "may not be used by this user"
        return f"{where} {why}; choose a port above 1023 with {options.port}"
    if error.errno == errno.EADDRNOTAVAIL:
        why = "this host has no such address (any more)"
        return f"{where}: {why}; choose another with {options.address}"
    return f"{where} cannot be listened on: {error.strerror or error}"


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
