"""Controllers: workers that take keys from a queue, reconcile them, and back off on failure.

A controller is level-triggered: events only say *which* object to reconcile; ``reconcile`` reads
the observed state and moves it towards the desired one, so a lost or doubled event does no harm.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from corral.aio import Background, TimeLimit
from corral.api.errors import ApiError, Conflict, NotFound
from corral.metrics import Family, Histogram
from corral.reconcile.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger()

RECONCILE_TIMEOUT_SECONDS = 300.0
"""A reconcile that takes longer is cancelled and retried, so that a stuck request occupies no
worker."""

SUCCEEDED, FAILED, REQUEUED, REQUEUED_AFTER = "success", "error", "requeue", "requeue_after"


class TerminalError(Exception):
    """A failure that no retry can fix: it is logged, and the key waits for its next event."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a reconcile that succeeded."""

    requeue_after: float | None = None
    """Seconds until the key is reconciled again, whether or not an event comes first."""


class Source(Protocol):
    """A cache that must be filled before a controller may act: an informer."""

    async def synced(self) -> None: ...


class Controller(Generic[K]):
    """A queue of keys and the workers that reconcile them.

    ``sources`` are the informers that ``reconcile`` reads: no key is reconciled before all of them
    have synced.  ``results`` counts reconciles by result, ``durations`` their seconds, for metrics;
    ``families`` returns metrics of its own.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        queue: WorkQueue[K],
        sources: Sequence[Source],
        workers: int = 8,
        families: Callable[[], Iterable[Family]] = tuple,
    ) -> None:
        self.name = name
        self.queue = queue
        self.families = families
        self._reconcile = reconcile
        self._sources = sources
        self.workers = workers
        self._started = self._idle = 0
        """Workers that run, and those among them that wait for a key."""
        self._causes: dict[K, str] = {}
        """Causes, as logged, of the keys that keep failing."""
        self.results: Counter[str] = Counter()
        self.durations = Histogram()

    async def run(self) -> None:
        """Reconcile keys until cancelled, once all sources have synced."""
        for source in self._sources:
            await source.synced()
        try:
            async with Background() as tasks:
                self._start_worker(tasks)
                await asyncio.Event().wait()
        finally:
            self.queue.close()

    def _start_worker(self, tasks: Background) -> None:
        _ = tasks.start(self._run_worker(tasks), name=f"{self.name}-{self._started}")
        self._started += 1
        self._idle += 1

    async def _run_worker(self, tasks: Background) -> None:
        """Reconcile keys, and start another worker when none is left to wait for the next one.

        Most controllers never need all of theirs, which took a good part of the time of a start.
        """
        limit = TimeLimit(RECONCILE_TIMEOUT_SECONDS)
        try:
            while True:
                async with self.queue.process_next() as key:
                    self._idle -= 1
                    if not self._idle and self._started < self.workers:
                        self._start_worker(tasks)
                    started = time.monotonic()
                    self.results[await self._attempt(key, limit)] += 1
                    self.durations.observe(time.monotonic() - started)
                self._idle += 1
        finally:
            limit.close()

    async def _attempt(self, key: K, limit: TimeLimit) -> str:
        """Reconcile a key; return the result, in controller-runtime's words."""
        try:
            with limit:
                result = await self._reconcile(key)
        except TerminalError as error:
            # The object's author is at fault, not this code: no traceback.
            log.error("will not retry", controller=self.name, key=str(key), error=str(error))  # noqa: TRY400
            self._succeeded(key)
            return FAILED
        except (Conflict, NotFound) as error:
            # The cache lagged; the event that brings it up to date is on its way.
            log.debug("cache was stale", controller=self.name, key=str(key), error=str(error))
            self.queue.retry(key)
            return REQUEUED
        except (ApiError, TimeoutError) as error:
            self._warn(key, error)
            self.queue.retry(key)
            return FAILED
        except Exception:
            # The only catch-all: a bug met by one object must not end the workers of all others.
            log.exception("reconcile failed", controller=self.name, key=str(key))
            self.queue.retry(key)
            return FAILED
        self._succeeded(key)
        if result is None or result.requeue_after is None:
            return SUCCEEDED
        self.queue.add_after(key, result.requeue_after)
        return REQUEUED_AFTER

    def _warn(self, key: K, error: ApiError | TimeoutError) -> None:
        """Log a failure that is retried: as a warning once per cause, for it may last for days."""
        cause = _cause(error)
        write = log.debug if self._causes.get(key) == cause else log.warning
        write("reconcile failed, will retry", controller=self.name, key=str(key), error=str(error))
        self._causes[key] = cause

    def _succeeded(self, key: K) -> None:
        """Reset the key's back-off."""
        self._causes.pop(key, None)
        self.queue.forget(key)


def _cause(error: ApiError | TimeoutError) -> str:
    """Return an error's message without the generated name of this one attempt."""
    if isinstance(error, ApiError) and error.details is not None and error.details.name:
        return error.message.replace(error.details.name, "")
    return str(error)
