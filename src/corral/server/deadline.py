"""How long an answer may take: a minute, or what the client says with ``timeout``."""

import asyncio
from collections.abc import Awaitable, Callable

from corral.api.errors import BadRequest, Timeout
from corral.api.time import parse_duration
from corral.api.wire import Request, Response
from corral.server import query

LONGEST_SECONDS = 60.0


async def within(request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer in the time that a request allows.  Raises Timeout, and BadRequest for no time.

    A write that was on its way to the disk may yet get there.  Streams only begin in this time;
    components of this process have deadlines of their own.
    """
    if request.user is not None:
        return await answer()
    deadline = asyncio.timeout(_seconds(request))
    try:
        async with deadline:
            return await answer()
    except TimeoutError:
        if not deadline.expired():
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
