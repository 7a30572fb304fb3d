"""Single flight: concurrent calls of the same key share one piece of work."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from corral.node.images.error import ImageError
from corral.node.images.progress import Progress, Report

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.reports: list[Report] = []
        self.latest: Progress | None = None
        self.outcome: T | ImageError | None = None

    def report(self, progress: Progress) -> None:
        self.latest = progress
        for report in self.reports:
            report(progress)


class SingleFlight(Generic[T]):
    """Shares work by key.

    The first waiter runs the work itself, so that no task outlives its waiters.  If it is
    cancelled, the next waiter runs the work again; resumable work loses little.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def run(self, key: Hashable, work: Callable[[Report], Awaitable[T]], report: Report) -> T:
        """Run the work of a key or wait for it; all waiters get its result or ImageError."""
        flight = self._flights.setdefault(key, _Flight())
        flight.reports.append(report)
        if flight.latest:
            report(flight.latest)
        try:
            async with flight.turn:
                if flight.outcome is None:
                    flight.outcome = await _outcome(work, flight.report)
                    self._end(key, flight)
        finally:
            flight.reports.remove(report)
            if not flight.reports:
                self._end(key, flight)
        if isinstance(flight.outcome, ImageError):
            # A copy: an exception raised in several tasks accumulates their tracebacks.
            failure = flight.outcome
            raise ImageError(failure.reason, failure.message, failure.hint) from failure
        return flight.outcome

    def _end(self, key: Hashable, flight: _Flight[T]) -> None:
        """Remove a flight, so that later calls start a new one."""
        if self._flights.get(key) is flight:
            del self._flights[key]


async def _outcome(work: Callable[[Report], Awaitable[T]], report: Report) -> T | ImageError:
    try:
        return await work(report)
    except ImageError as error:
        return error
