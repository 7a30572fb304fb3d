"""Byte streams to a VMI through the API server: KubeVirt's websocket protocol.

The subprotocol is ``plain.kubevirt.io``: binary messages carry the bytes, message boundaries mean
nothing, a normal close is the end (KubeVirt client-go, websocket.go).
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Self

from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidStatus,
    WebSocketException,
)
from websockets.typing import Subprotocol

from corral import sockets
from corral.api.errors import Unavailable
from corral.client.decoding import error_from
from corral.failures import describe

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

PROTOCOL = Subprotocol("plain.kubevirt.io")
MAX_MESSAGE_BYTES = 1 << 20
CLOSE_SECONDS = 2
"""Longest close: leaving a console must not wait for a dead server."""
DEAD_PEER_SECONDS = 300
"""Longest time that a server may leave data or TCP keep-alive probes unacknowledged."""


@cache
def _connector() -> "type[connect]":
    """Return a class that connects to the server of its URL and to no other.

    A redirect is a refusal: the library follows them, and shows the client's certificate wherever
    they lead.
    """
    from websockets.asyncio.client import connect  # noqa: PLC0415  no start needs it

    class Connect(connect):
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    return Connect


class Stream:
    """An open stream; iterate over it to receive."""

    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        headers: Mapping[str, str],
        tls: ssl.SSLContext,
        seconds: float = 30,
        silent_seconds: int = DEAD_PEER_SECONDS,
        description: str = "the API server",
        protocol: Subprotocol = PROTOCOL,
    ) -> AsyncIterator[Self]:
        """Connect to a ``wss://`` URL.  Raises the ApiError that the server responds with.

        seconds: longest time to connect; silent_seconds: as DEAD_PEER_SECONDS; description: names
        the server in errors.
        """
        try:
            connection = await _connector()(
                url,
                subprotocols=[protocol],
                additional_headers=dict(headers),
                ssl=tls,
                compression=None,
                open_timeout=seconds,
                close_timeout=CLOSE_SECONDS,
                ping_timeout=None,  # a pong queues behind unread data, on either side
                max_size=MAX_MESSAGE_BYTES,
                proxy=None,
            )
        except InvalidStatus as rejection:
            refused = rejection.response
            raise error_from(bytes(refused.body or b""), refused.status_code) from rejection
        except (OSError, WebSocketException, ValueError) as error:
            server = url.partition("://")[2].partition("/")[0]
            message = f"{description} at {server} does not answer: {describe(error)}"
            raise Unavailable(message) from error
        try:
            connected = connection.transport.get_extra_info("socket")
            sockets.keep_alive(connected, silent_seconds)
            sockets.set_user_timeout(connected, silent_seconds)
            yield cls(connection)
        finally:
            await connection.close()

    async def send(self, data: bytes) -> None:
        """Send bytes; they are dropped after a normal close by the server.  Raises StreamLost."""
        try:
            await self._connection.send(data)
        except ConnectionClosedOK:
            return
        except ConnectionClosed as closed:
            raise _stream_lost(closed) from closed

    async def delivered(self) -> None:
        """Wait until the server has read all that was sent, as slowly as its guest reads it.

        Closing earlier discards what is still in flight.  Raises StreamLost.
        """
        try:
            await (await self._connection.ping())
        except ConnectionClosedOK:
            return
        except ConnectionClosed as closed:
            raise _stream_lost(closed) from closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for message in self._connection:
                if isinstance(message, bytes):
                    yield message
        except ConnectionClosed as closed:
            raise _stream_lost(closed) from closed

    @property
    def close_reason(self) -> str:
        """The close reason that the server sent, or ""."""
        return self._connection.close_reason or ""


class StreamLost(Exception):
    """The connection was lost without a normal close."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "the connection was lost")


def _stream_lost(closed: ConnectionClosed) -> StreamLost:
    return StreamLost(closed.rcvd.reason if closed.rcvd else "")
