"""The clock of an API server, by the header Date of its responses.

A host may be wrong about the time of day by minutes.  Whatever compares its own time with one that
the API server wrote, such as a deletionTimestamp, goes by this clock instead.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

FAR_SECONDS: Final = 300.0
"""A difference at which certificates fail: they are valid from so long before they are issued.

That is ``pki.SKEW``, whose import would bring cryptography into every client.
"""
_UNITS: Final = ((2 * 86400.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (0.0, 60.0, "minutes"))
"""From how many seconds a difference is written in a unit, and the seconds of that."""


class ServerClock:
    """A server's time of day, by this host's clock and the last response.

    local: this host's time of day, in seconds since 1970.
    """

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self._local = local
        self.offset = 0.0
        """Seconds by which the server is ahead of this host; 0 while none are certain."""

    def begin(self) -> float:
        """Return the time to note before a request is sent."""
        return self._local()

    def observe(self, date: str, sent: float) -> None:
        """Note the Date of the response to a request that was sent at ``sent``.

        The server wrote it between then and now, and without the fraction of its second: the
        smallest offset that explains the Date counts.
        """
        try:
            seconds = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # none, or that of a proxy which does not know the format
        least, most = seconds - self._local(), seconds + 1 - sent
        self.offset = max(least, min(0.0, most))

    def now(self) -> datetime:
        """Return the server's time of day, UTC."""
        return datetime.fromtimestamp(self._local() + self.offset, UTC)

    @property
    def difference(self) -> str:
        """The difference of this host's clock, as in ``10 minutes behind``; empty if not far."""
        if abs(self.offset) <= FAR_SECONDS:
            return ""
        size, unit = next((size, unit) for least, size, unit in _UNITS if abs(self.offset) >= least)
        return (
            f"{round(abs(self.offset) / size)} {unit} {'behind' if self.offset > 0 else 'ahead of'}"
        )
