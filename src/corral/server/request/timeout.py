"""Request timeouts: a minute, or the query parameter ``timeout``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from corral.api.errors import BadRequest, Timeout
from corral.api.request import Request
from corral.api.time import parse_duration
from corral.server.request import query

MAX_SECONDS = 60.0

T = TypeVar("T")


def deadline_of(request: Request) -> float | None:
    """Return the deadline of a request received now, by the loop's clock.

    None for components of this process, which have their own.  Raises BadRequest for an invalid
    duration.
    """
    if request.is_in_process:
        return None
    return asyncio.get_running_loop().time() + _seconds(request)


async def within(deadline: float | None, respond: Callable[[], Awaitable[T]]) -> T:
    """Await a response until a deadline.  Raises Timeout.

    A staged write may still be committed.  For streams, only their start counts.
    """
    if deadline is None:
        return await respond()
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            return await respond()
    except TimeoutError:
        if not timeout.expired():
            raise
        raise Timeout("Timeout: request did not complete within the allotted timeout") from None


def _seconds(request: Request) -> float:
    """Return the client's timeout, up to the maximum; 0 counts as absent."""
    if "timeout=" not in request.query:
        return MAX_SECONDS
    text = query.parse(request.query).get("timeout", "")
    try:
        seconds = parse_duration(text) if text else 0.0
    except ValueError:
        raise BadRequest(
            f'invalid timeout specified in the request URL - time: invalid duration "{text[:50]}"'
        ) from None
    return min(seconds or MAX_SECONDS, MAX_SECONDS)
