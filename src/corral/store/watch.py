"""What one watcher has still to be told."""

import asyncio
from collections.abc import Callable, Sequence

from corral.store.record import Event

QUEUE_LIMIT = 20_000
"""Changes that may wait for one watcher.  They are shared, so this bounds time, not memory."""


class Watch:
    """The changes of one kind after a revision, in order; close it when done.

    With a namespace or a name only changes there wake the watcher: the others cost it nothing.

    A watcher that lags more than ``limit`` changes is cut off rather than fed from memory for ever:
    it lists again.  ``ended`` tells that no more will come.
    """

    def __init__(
        self,
        backlog: list[Event],
        *,
        namespace: str = "",
        name: str = "",
        limit: int = QUEUE_LIMIT,
        on_close: Callable[["Watch"], None],
    ) -> None:
        self.ended = False
        self._namespace = namespace
        self._name = name
        self._limit = limit + len(backlog)
        self._waiting: list[Event] = []
        self._wake: asyncio.Future[None] | None = None
        self._on_close = on_close
        self.tell(backlog)

    def tell(self, events: Sequence[Event]) -> None:
        """Add changes; called by the store alone."""
        if self._namespace:
            events = [event for event in events if event.record.key.namespace == self._namespace]
        if self._name:
            events = [event for event in events if event.record.key.name == self._name]
        if not events:
            return
        if len(self._waiting) + len(events) > self._limit:
            self.close()
            return
        self._waiting.extend(events)
        self._rouse()

    def close(self) -> None:
        """Stop: what waits can still be taken, nothing is added any more."""
        if not self.ended:
            self.ended = True
            self._on_close(self)
            self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @property
    def finished(self) -> bool:
        """Whether it has ended and all of it was taken."""
        return self.ended and not self._waiting

    async def take(self, seconds: float) -> list[Event]:
        """All changes that are ready; waits at most ``seconds`` for the first, then answers []."""
        if not self._waiting and not self.ended:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(seconds, self._rouse)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        ready, self._waiting = self._waiting, []
        return ready
