"""Runs a loop: takes keys from a queue, reconciles them, backs off when that fails.

A controller is level-triggered: events only say *which* object to look at; ``reconcile`` reads the
present state and moves it towards what is wanted, so a lost or doubled event does no harm.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from corral.aio import Background, TimeLimit
from corral.api.errors import ApiError, Conflict, NotFound
from corral.metrics import Histogram
from corral.reconcile.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger()

SLOWEST_SECONDS = 300.0
"""A reconcile that takes longer is broken off and retried: one stuck request holds no worker."""

SUCCEEDED, FAILED, REQUEUED, LATER = "success", "error", "requeue", "requeue_after"


class Terminal(Exception):
    """A failure that no retry can mend: it is logged, and the key waits for its next event."""


@dataclass(frozen=True, slots=True)
class Result:
    """What follows a reconcile that went well."""

    requeue_after: float | None = None
    """Look again in so many seconds, whether or not anything happens until then."""


class Source(Protocol):
    """Something whose present state has to be known before a loop may act: an informer."""

    async def synced(self) -> None: ...


class Controller(Generic[K]):
    """A queue of keys and the workers that reconcile them.

    ``sources`` are the informers that ``reconcile`` reads: no key is worked on before all of them
    have seen the present state.  ``results`` counts how reconciles went, and ``took`` how long they
    took, for metrics.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        *,
        queue: WorkQueue[K],
        sources: Sequence[Source],
        workers: int = 8,
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._sources = sources
        self.workers = workers
        self._causes: dict[K, str] = {}
        """Of the keys that fail: why, as it was logged."""
        self.results: Counter[str] = Counter()
        self.took = Histogram()

    async def run(self) -> None:
        """Work until cancelled."""
        for source in self._sources:
            await source.synced()
        try:
            async with Background() as tasks:
                for number in range(self.workers):
                    _ = tasks.start(self._work(), name=f"{self.name}-{number}")
                await asyncio.Event().wait()
        finally:
            self.queue.close()

    async def _work(self) -> None:
        limit = TimeLimit(SLOWEST_SECONDS)
        try:
            while True:
                async with self.queue.take() as key:
                    begun = time.monotonic()
                    self.results[await self._attempt(key, limit)] += 1
                    self.took.observe(time.monotonic() - begun)
        finally:
            limit.close()

    async def _attempt(self, key: K, limit: TimeLimit) -> str:
        """Reconcile; answers how it went, in controller-runtime's words."""
        try:
            with limit:
                result = await self._reconcile(key)
        except Terminal as error:
            # A verdict on what somebody wrote, not a fault of ours: no traceback.
            log.error("given up", controller=self.name, key=str(key), error=str(error))  # noqa: TRY400
            self._mended(key)
            return FAILED
        except (Conflict, NotFound) as error:
            # The cache lagged; the event that brings it up to date is on its way.
            log.debug(
                "looked at an old state", controller=self.name, key=str(key), error=str(error)
            )
            self.queue.retry(key)
            return REQUEUED
        except (ApiError, TimeoutError) as error:
            self._warn(key, error)
            self.queue.retry(key)
            return FAILED
        except Exception:
            # The one door: a fault over one object must not end the loops of all the others.
            log.exception("reconcile failed", controller=self.name, key=str(key))
            self.queue.retry(key)
            return FAILED
        self._mended(key)
        if result is None or result.requeue_after is None:
            return SUCCEEDED
        self.queue.add_after(key, result.requeue_after)
        return LATER

    def _warn(self, key: K, error: ApiError | TimeoutError) -> None:
        """Log a failure that is retried: as a warning once a cause, for it may last for days."""
        cause = _cause(error)
        tell = log.debug if self._causes.get(key) == cause else log.warning
        tell("will retry", controller=self.name, key=str(key), error=str(error))
        self._causes[key] = cause

    def _mended(self, key: K) -> None:
        """End the key's row of failures."""
        self._causes.pop(key, None)
        self.queue.forget(key)


def _cause(error: ApiError | TimeoutError) -> str:
    """Why something failed, without the name that was made up for this one attempt."""
    if isinstance(error, ApiError) and error.details is not None and error.details.name:
        return error.message.replace(error.details.name, "")
    return str(error)
