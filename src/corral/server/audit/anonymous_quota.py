"""A rate limit of audit events of unauthenticated clients.

Clients without credentials can send any number of requests.  Their events are bounded, so that they
neither fill the disk nor rotate other events out of the log; omitted ones are counted, and reported
in the log itself, by at most one line a minute.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

BYTES_PER_MINUTE: Final = 64 << 10
"""Some hundred events; in eleven days as much as the log keeps."""
BURST_BYTES: Final = 1 << 20
"""The burst after a quiet time."""
REPORT_SECONDS: Final = 60.0


class AnonymousQuota:
    """A token bucket of bytes; ``report`` is called with the count of omitted lines.

    ``clock`` is in seconds, and never goes back.  Used from one event loop.
    """

    def __init__(
        self, report: Callable[[int], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._allowance = float(BURST_BYTES)
        self._updated = clock()
        self._unreported = 0
        self._timer: asyncio.TimerHandle | None = None
        self.omitted = 0
        """Count of omitted lines."""

    def admit(self, size: int) -> bool:
        """Return whether a line of so many bytes may be written; else count it as omitted.

        A line longer than a minute's allowance is omitted: it would suppress all others.
        """
        now = self._clock()
        earned = (now - self._updated) * BYTES_PER_MINUTE / 60
        self._allowance, self._updated = min(self._allowance + earned, BURST_BYTES), now
        if self._allowance > 0 and size <= BYTES_PER_MINUTE:
            self._allowance -= size  # may become negative
            return True
        self.omitted += 1
        self._unreported += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_SECONDS, self.flush)
        return False

    def flush(self) -> None:
        """Report omitted lines now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unreported:
            unreported, self._unreported = self._unreported, 0
            self._report(unreported)
