"""Timeout of a connection's client, with a timer that is rarely rescheduled."""

import asyncio
from collections.abc import Callable

MAX_CHECK_SECONDS = 30.0
"""Longest interval between checks of the due time."""


def _nothing() -> None:
    """Do nothing."""


class IdleTimeout:
    """Calls ``expired`` unless it is stopped in time.

    It nearly always is.  Creating and cancelling a timer of the loop each time would be a tenth of
    the cost of a small request, so the timer stays, and compares the due time when it fires.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self.due: float | None = None
        """Time at which it expires, by the loop's clock; None while it is stopped."""

    def start(self, seconds: float) -> None:
        """Expire in so many seconds, instead of at an earlier start's time."""
        self.due = self._loop.time() + seconds
        if self._timer is None:
            self._arm(self.due)
        elif self._timer.when() > self.due:
            self._timer.cancel()
            self._arm(self.due)

    def stop(self) -> None:
        """Stop until the next start."""
        self.due = None

    def close(self) -> None:
        """Stop for good, and drop the reference to the callback."""
        self.due = None
        self._expired = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        self._timer = self._loop.call_at(
            min(due, self._loop.time() + MAX_CHECK_SECONDS), self._check
        )

    def _check(self) -> None:
        self._timer = None
        if self.due is None:
            return
        if self.due <= self._loop.time():
            self.due = None
            self._expired()
        else:
            self._arm(self.due)
