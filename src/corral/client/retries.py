"""Retries of requests that an API server puts off: 429, and 5xx with Retry-After.

API priority and fairness answers so when a server has too much to do.  Nothing was done for such a
request, so every verb may be repeated.  Other failures are for callers to retry.
"""

import asyncio
from typing import Final

from corral.api.request import Request, Response
from corral.client.transport import Transport

MOST_RETRIES: Final = 10
"""As client-go's."""
LONGEST_SECONDS: Final = 30.0
"""A server that says more is asked again after this time."""
_TOO_MANY = 429


class Retrying:
    """A transport that repeats put-off requests after the time that the server names."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request) -> Response:
        """Send a request; return the last response if all retries are put off as well."""
        for _ in range(MOST_RETRIES):
            response = await self._transport.send(request)
            seconds = retry_after(response)
            if seconds is None:
                return response
            await asyncio.sleep(seconds)
        return await self._transport.send(request)


def retry_after(response: Response) -> float | None:
    """Return the seconds after which a request is to be repeated; None if it is not.

    As client-go, this takes a number of seconds only, and no date.
    """
    if response.status != _TOO_MANY and not 500 <= response.status < 600:
        return None
    for name, value in response.headers:
        if name.lower() == "retry-after" and value.isascii() and value.isdecimal():
            return min(float(value), LONGEST_SECONDS)
    return None
