"""Requests to nodes of other hosts over mutual TLS: at their own port, or at the API server's."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlencode

from corral.api.errors import Unavailable
from corral.api.images import MIGRATIONS_PATH
from corral.client.kubeconfig import Kubeconfig
from corral.client.stream import Stream
from corral.failures import describe
from corral.node.machine.migration.channel import Channel

CONNECT_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 10
"""Time without an acknowledgement after which the other host counts as lost: a guest may stand
still meanwhile."""

Reach = Callable[[str], Kubeconfig | None]
"""Returns how to reach the API of a node, with this host's certificate; None for an unknown one."""


class HostLinks:
    """The ``Links`` of a host."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    @asynccontextmanager
    async def open(self, node: str, query: Mapping[str, str]) -> AsyncGenerator[Channel, None]:
        """Open a websocket.  Raises ApiError."""
        config = self._config(node)
        url = f"wss://{config.server.partition('://')[2]}{_path(query)}"
        try:
            tls = config.tls()
        except OSError as error:  # a full disk, or too many open files
            raise Unavailable(f"node {node} cannot be called: {describe(error)}") from error
        opened = Stream.open(
            url,
            headers=config.headers,
            tls=tls,
            seconds=CONNECT_SECONDS,
            silent_seconds=SILENT_SECONDS,
            description=f"node {node}",
        )
        async with opened as stream:
            yield stream

    @asynccontextmanager
    async def download(
        self, node: str, query: Mapping[str, str]
    ) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]], None]:
        """Request a file; see ``Https.download``.  Raises ApiError."""
        from corral.client.https import Https  # noqa: PLC0415 - most starts migrate nothing

        async with (
            Https(self._config(node), description=f"node {node}") as transport,
            transport.download(_path(query), {}) as response,
        ):
            yield response

    def _config(self, node: str) -> Kubeconfig:
        if (config := self._reach(node)) is None:
            raise Unavailable(f"node {node} has no address and port at which it can be reached")
        return config


def _path(query: Mapping[str, str]) -> str:
    return f"{MIGRATIONS_PATH}?{urlencode(query)}"
