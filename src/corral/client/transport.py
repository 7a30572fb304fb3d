"""Transports of requests to an API server: the protocol, and a server of this process.

``https`` has the transport to another process.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from corral.api.request import Request, Response, User


class Transport(Protocol):
    """Sends a request to a server; raises Unavailable when it cannot be reached."""

    async def send(self, request: Request) -> Response: ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server of this process, called as a component's user, without credentials."""

    handle: Callable[[Request], Awaitable[Response]]
    user: User

    async def send(self, request: Request) -> Response:
        request.user = self.user
        return await self.handle(request)
