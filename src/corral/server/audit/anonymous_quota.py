"""How much of the audit log those may fill whom nobody knows.

Who has no credentials can ask as often as the network lets them.  What is told of them is bounded,
so that they neither fill the disk nor push out what is told of others; what is left out is counted,
and that is told in the log itself, by one line a minute at most.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

BYTES_A_MINUTE: Final = 64 << 10
"""Some hundred events; in eleven days as much as the log keeps."""
BYTES_AT_ONCE: Final = 1 << 20
"""What may come together after a time of quiet."""
TOLD_SECONDS: Final = 60.0


class Strangers:
    """What may be written of them; ``tell`` tells how many lines were left out, when they are.

    ``clock`` is in seconds, and never goes back.  Used from one event loop.
    """

    def __init__(
        self, tell: Callable[[int], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._room = float(BYTES_AT_ONCE)
        self._seen = clock()
        self._untold = 0
        self._timer: asyncio.TimerHandle | None = None
        self.omitted = 0
        """Lines that were left out, ever."""

    def admit(self, size: int) -> bool:
        """Whether a line of so many bytes may be written; else it is counted.

        One that is longer than what a minute gives is not: others would be silenced for it.
        """
        now = self._clock()
        gained = (now - self._seen) * BYTES_A_MINUTE / 60
        self._room, self._seen = min(self._room + gained, BYTES_AT_ONCE), now
        if self._room > 0 and size <= BYTES_A_MINUTE:
            self._room -= size  # below zero, where it is larger than what is left
            return True
        self.omitted += 1
        self._untold += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOLD_SECONDS, self.settle)
        return False

    def settle(self) -> None:
        """Tell now of what was left out and not told yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._untold:
            untold, self._untold = self._untold, 0
            self._tell(untold)
