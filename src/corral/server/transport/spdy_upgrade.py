"""Upgrades of connections to SPDY/3.1, for kubectl before 1.31 and clients that fall back to it.

The app sees a websocket whose messages are the raw bytes of the connection.  A stream protocol of
the client (``X-Stream-Protocol-Version``) becomes the websocket subprotocol that tunnels it, such
as ``SPDY/3.1+portforward.k8s.io``: an app that serves one serves the other.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Message

from corral import sockets
from corral.server.transport.slow_reader import UNREAD_SECONDS, SlowReaderProtocol, StallTimer

UPGRADE: Final = b"spdy/3.1"
PREFIX: Final = "SPDY/3.1+"
CLOSE_STALL_SECONDS: Final = 60.0
"""Time in which a client neither reads nor closes after the last message, before its connection is
closed."""
MAX_CLOSE_SECONDS: Final = 300.0
"""Longest close in all, even if the client reads now and then."""

log = structlog.get_logger()


class Tunnel(SlowReaderProtocol):
    """A connection after its upgrade; ``scope`` and ``url`` are those of the request.

    It adds itself to ``connections`` and its task to ``tasks``, which the server ends on shutdown.
    """

    def __init__(
        self,
        app: ASGIApp,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
        scope: dict[str, Any],
        url: bytes,
    ) -> None:
        self._app = app
        self._connections = connections
        self._tasks = tasks
        self._scope = _as_websocket(scope, url)
        self.transport: asyncio.Transport
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing: StallTimer | None = None
        self._open = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        detect_dead_peer(transport)
        self._connections.add(self)
        self._messages.put_nowait({"type": "websocket.connect"})
        task = asyncio.get_running_loop().create_task(self._run())
        task.add_done_callback(self._tasks.discard)
        self._tasks.add(task)

    def data_received(self, data: bytes) -> None:
        if self._closing is not None:
            return
        self._messages.put_nowait({"type": "websocket.receive", "bytes": data})
        self.transport.pause_reading()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.discard(self)
        self._writable.set()
        if self._closing is not None:
            self._closing.cancel()
        self._disconnect(1006)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writable.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writable.set()

    def shutdown(self) -> None:
        """Close at the server's end."""
        self._disconnect(1012)
        self.transport.close()

    def _disconnect(self, code: int) -> None:
        self._messages.put_nowait({"type": "websocket.disconnect", "code": code})

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except OSError:
            pass  # the client disconnected during a write
        except Exception:
            log.exception("a stream failed", path=self._scope["path"])
        finally:
            if not self._open and not self._status:
                self._reject(500, [], b"")
            if self._closing is None:
                self.transport.close()

    async def _receive(self) -> Message:
        if self._messages.empty() and not self.transport.is_closing():
            self.transport.resume_reading()
        return await self._messages.get()

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                self._accept(message.get("subprotocol") or "")
            case "websocket.http.response.start":
                self._status, self._headers = message["status"], list(message["headers"])
            case "websocket.http.response.body":
                self._reject(self._status, self._headers, message.get("body", b""))
            case "websocket.send":
                await self._writable.wait()
                if self.transport.is_closing():
                    raise ConnectionResetError("the client disconnected")
                self.transport.write(message["bytes"])
            case _:  # websocket.close
                if self._open:
                    self._await_close()
                    return
                self._status = 403
                self._reject(403, [], b"")
                self.transport.close()

    def _await_close(self) -> None:
        """Wait until the client closes the connection, after the last message.

        kubectl drops received data that it has not read when the server closes first, and so may
        its kernel if the server has unread data.
        """
        if self._closing is None and not self.transport.is_closing():
            self._closing = StallTimer(self.transport, CLOSE_STALL_SECONDS, self.transport.close)
            self.transport.resume_reading()

    def _accept(self, protocol: str) -> None:
        self._open = True
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol.removeprefix(PREFIX)}\r\n\r\n"
        )
        self.transport.write(head.encode())

    def _reject(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Reject the upgrade with a whole response."""
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        kept += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(b"%s: %s\r\n" % pair for pair in kept)
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self.transport.write(first + lines + b"\r\n" + body)


def detect_dead_peer(transport: asyncio.Transport) -> None:
    """Make the kernel detect a client that disappears without closing."""
    if (connection := transport.get_extra_info("socket")) is not None:
        sockets.keep_alive(connection, int(UNREAD_SECONDS))
        sockets.set_user_timeout(connection, int(UNREAD_SECONDS))


def _as_websocket(scope: dict[str, Any], url: bytes) -> dict[str, Any]:
    """Return the websocket scope of a request; its method is in the state."""
    path, _, query = url.partition(b"?")
    offered = [
        PREFIX + name.strip()
        for header, value in scope["headers"]
        if header == b"x-stream-protocol-version"
        for name in value.decode("latin-1").split(",")
    ]
    return {
        **scope,
        "type": "websocket",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "subprotocols": offered,
        "state": {**scope["state"], "method": scope["method"]},
        "extensions": {"websocket.http.response": {}},
    }
