"""Returns freed memory to the system after many streams have ended.

Their memory is fragmented over the heap, and the C library keeps it for later allocations.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

MIN_STREAMS: Final = 64
"""Ended streams that make a trim worthwhile: it takes about a millisecond per 10 MB."""
DELAY_SECONDS: Final = 2.0
"""Delay after that, for further streams to end."""


class MemoryTrim:
    """Counts ended streams, and calls ``trim`` after many of them."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or return_memory
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def stream_ended(self) -> None:
        """Count an ended stream."""
        self._count += 1
        if self._count >= MIN_STREAMS and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self._run)

    def _run(self) -> None:
        self._count, self._timer = 0, None
        self._trim()


def return_memory() -> None:
    """Call glibc's malloc_trim(3); do nothing with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
