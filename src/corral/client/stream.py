"""Raw byte streams to a machine through the API server: KubeVirt's websocket protocol.

The subprotocol is ``plain.kubevirt.io``: binary messages are the bytes, message borders mean
nothing, a normal close is the end (KubeVirt client-go, websocket.go).
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidStatus,
)
from websockets.typing import Subprotocol

from corral import sockets
from corral.api.errors import ApiError, Unavailable, error_from_status

PROTOCOL = Subprotocol("plain.kubevirt.io")
LONGEST_MESSAGE = 1 << 20
GOODBYE_SECONDS = 2
"""How long a close may take: whoever leaves a console does not want to wait for a dead server."""
GONE_SECONDS = 300
"""How long a server may take nothing, or say nothing when it is asked whether it is there."""


class Stream:
    """An open stream; iterate over it for what comes in."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, headers: Mapping[str, str], tls: ssl.SSLContext, seconds: float = 30
    ) -> AsyncIterator[Self]:
        """Connect to a ``wss://`` address; raises the ApiError that the server answers instead."""
        try:
            connection = await connect(
                url,
                subprotocols=[PROTOCOL],
                additional_headers=dict(headers),
                ssl=tls,
                compression=None,
                open_timeout=seconds,
                close_timeout=GOODBYE_SECONDS,
                ping_timeout=None,  # the answer stands behind what is not read yet, here or there
                max_size=LONGEST_MESSAGE,
                proxy=None,
            )
        except InvalidStatus as refusal:
            raise _error(refusal) from refusal
        except (OSError, InvalidHandshake, ConnectionClosed) as error:
            server = url.partition("://")[2].partition("/")[0]
            what = str(error) or "it took too long"
            raise Unavailable(f"the API server at {server} does not answer: {what}") from error
        connected = connection.transport.get_extra_info("socket")
        sockets.keep_alive(connected, GONE_SECONDS)
        sockets.give_up(connected, GONE_SECONDS)
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def send(self, data: bytes) -> None:
        """Send some bytes; what is sent after the other side's goodbye goes nowhere.

        Raises StreamLost.
        """
        try:
            await self._connection.send(data)
        except ConnectionClosedOK:
            return
        except ConnectionClosed as closed:
            raise _lost(closed) from closed

    async def delivered(self) -> None:
        """Wait until the server has read all that was sent, as slowly as its guest takes it.

        Who leaves before that takes back what is still on its way.  Raises StreamLost.
        """
        try:
            await (await self._connection.ping())
        except ConnectionClosedOK:
            return
        except ConnectionClosed as closed:
            raise _lost(closed) from closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for message in self._connection:
                if isinstance(message, bytes):
                    yield message
        except ConnectionClosed as closed:
            raise _lost(closed) from closed

    @property
    def close_reason(self) -> str:
        """Why the other side closed, where it said so."""
        return self._connection.close_reason or ""


class StreamLost(Exception):
    """The connection broke without a goodbye."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "the connection was lost")


def _lost(closed: ConnectionClosed) -> StreamLost:
    return StreamLost(closed.rcvd.reason if closed.rcvd else "")


def _error(refusal: InvalidStatus) -> ApiError:
    code = refusal.response.status_code
    body = refusal.response.body or b""
    try:
        status = msgspec.json.decode(body, type=dict)
    except msgspec.DecodeError:
        said = bytes(body[:500]).decode(errors="replace").strip()
        status = {"message": said or f"the server answered {code}"}
    return error_from_status(status, code)
