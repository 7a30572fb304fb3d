"""One piece of work for many waiters, which lasts as long as any of them."""

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

    def tell(self, progress: Progress) -> None:
        self.latest = progress
        for report in self.reports:
            report(progress)


class Flights(Generic[T]):
    """Shares work by key.

    The first waiter does the work itself, so there is no task that could outlive its waiters.
    When that one is cancelled the next takes over; work that leaves its progress where the next
    finds it loses little.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(
        self, key: Hashable, work: Callable[[Report], Awaitable[T]], report: Report
    ) -> T:
        """The outcome of the work of that key, an ImageError included, for all that wait now."""
        flight = self._flights.setdefault(key, _Flight())
        flight.reports.append(report)
        if flight.latest:
            report(flight.latest)
        try:
            async with flight.turn:
                if flight.outcome is None:
                    flight.outcome = await _outcome(work, flight.tell)
                    self._end(key, flight)
        finally:
            flight.reports.remove(report)
            if not flight.reports:
                self._end(key, flight)
        if isinstance(flight.outcome, ImageError):
            # A copy: an exception that is raised in several tasks collects all their tracebacks.
            failure = flight.outcome
            raise ImageError(failure.reason, failure.message, failure.hint) from failure
        return flight.outcome

    def _end(self, key: Hashable, flight: _Flight[T]) -> None:
        """Who comes later asks anew."""
        if self._flights.get(key) is flight:
            del self._flights[key]


async def _outcome(work: Callable[[Report], Awaitable[T]], report: Report) -> T | ImageError:
    try:
        return await work(report)
    except ImageError as error:
        return error
