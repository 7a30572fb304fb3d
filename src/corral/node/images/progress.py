"""Progress of pulls and imports, reported from threads and coroutines."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

_THREADS = ThreadPoolExecutor(4, "corral-unpack")
"""A pool of its own: unpacking takes minutes, and must not occupy the shared pool."""
P = ParamSpec("P")
T = TypeVar("T")

_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """stage: ``download``, ``unpack``, ``convert`` or ``store``; total: 0 if unknown."""

    stage: str
    done_bytes: int
    total_bytes: int


Report = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Report nothing."""


class Stopped(Exception):
    """The waiter was cancelled: the thread shall end."""


class Meter:
    """Counts the bytes of one stage, and reports at most ten times a second.

    ``advance`` may be called from a thread; the report runs on the event loop of the constructor.
    """

    def __init__(self, report: Report, stage: str, total_bytes: int = 0) -> None:
        self._report = report
        self._stage = stage
        self._total = total_bytes
        self._done = 0
        self._reported = 0.0
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()

    def advance(self, count: int) -> None:
        """Count processed bytes, up to the total.  Raises Stopped after ``stop``."""
        if self._stop.is_set():
            raise Stopped
        self._done = min(self._done + count, self._total or sys.maxsize)
        now = time.monotonic()
        finished = self._total and self._done >= self._total
        if finished or now - self._reported >= _INTERVAL_SECONDS:
            self._reported = now
            progress = Progress(self._stage, self._done, self._total)
            self._loop.call_soon_threadsafe(self._report, progress)

    def stop(self) -> None:
        """Make the next ``advance`` raise Stopped."""
        self._stop.set()


async def in_thread(
    work: Callable[Concatenate[Meter, P], T], meter: Meter, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run blocking work in a thread; if the caller is cancelled, the work stops soon after."""
    try:
        call = partial(work, meter, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
    except asyncio.CancelledError:
        meter.stop()
        raise
