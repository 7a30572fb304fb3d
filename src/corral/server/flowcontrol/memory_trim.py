"""Gives memory back to the system once many streams have ended.

What they held lies in pieces all over the heap, and the C library keeps it for what comes.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

FROM: Final = 64
"""After so many streams it is worth while: it takes a millisecond for each 10 MB or so."""
AFTER_SECONDS: Final = 2.0
"""When many end they hardly do at once."""


class Trimming:
    """Counts the streams that end; ``trim`` gives back what nobody holds any more."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or _trim
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None

    def ended(self) -> None:
        """A stream has ended."""
        self._ended += 1
        if self._ended >= FROM and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AFTER_SECONDS, self._now)

    def _now(self) -> None:
        self._ended, self._timer = 0, None
        self._trim()


def _trim() -> None:
    """Glibc's malloc_trim(3); other C libraries do without."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
