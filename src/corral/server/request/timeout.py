"""How long an answer may take: a minute, or what the client says with ``timeout``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from corral.api.errors import BadRequest, Timeout
from corral.api.request import Request
from corral.api.time import parse_duration
from corral.server.request import query

LONGEST_SECONDS = 60.0

T = TypeVar("T")


def deadline_of(request: Request) -> float | None:
    """When a request that comes now is to be answered, by the loop's clock.

    Raises BadRequest for a time that is none.  Components of this process have deadlines of their
    own.
    """
    if request.user is not None:
        return None
    return asyncio.get_running_loop().time() + _seconds(request)


async def within(deadline: float | None, answer: Callable[[], Awaitable[T]]) -> T:
    """Answer until then.  Raises Timeout.

    A write that was on its way to the disk may yet get there.  Streams only begin in this time.
    """
    if deadline is None:
        return await answer()
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            return await answer()
    except TimeoutError:
        if not timeout.expired():
            raise
        raise Timeout("Timeout: request did not complete within the allotted timeout") from None


def _seconds(request: Request) -> float:
    """What the client asks for, up to the longest; 0 asks for nothing."""
    if "timeout=" not in request.query:
        return LONGEST_SECONDS
    text = query.parse(request.query).get("timeout", "")
    try:
        seconds = parse_duration(text) if text else 0.0
    except ValueError:
        raise BadRequest(
            f'invalid timeout specified in the request URL - time: invalid duration "{text[:50]}"'
        ) from None
    return min(seconds or LONGEST_SECONDS, LONGEST_SECONDS)
