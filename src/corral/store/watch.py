"""What one watcher has still to be told."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from corral.store.object_version import Event

MOST = 256
"""Changes that are taken at once: to tell more would keep others waiting."""
MOST_BYTES = 64 << 10
"""Their bytes, but for one that is larger: the window forgets what waits, not what was taken."""


class Watch:
    """The changes of one kind after the revision ``since``, in order; close it when done.

    With a namespace or a name only changes there wake the watcher: the others cost it nothing.
    What waits is shared with the store's window.  A watcher that lags so far that the window has
    forgotten what it should hear next is cut off: it lists again.  ``ended`` tells that no more
    will come; ``lost`` is the revision after which it was not told any more, where it was cut off,
    and ``complete_until`` that up to which it was told all, where the store ended it otherwise.
    """

    def __init__(
        self,
        since: int,
        *,
        namespace: str = "",
        name: str = "",
        on_close: Callable[["Watch"], None],
    ) -> None:
        self.ended = False
        self.lost: int | None = None
        self.complete_until: int | None = None
        self._since = since
        self._namespace = namespace
        self._name = name
        self._waiting: deque[Event] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._on_close = on_close

    def tell(self, events: Sequence[Event]) -> None:
        """Add changes; called by the store alone."""
        if events and events[0].revision <= self._since:  # asked for the future
            events = [event for event in events if event.revision > self._since]
        if self._namespace:
            events = [event for event in events if event.record.key.namespace == self._namespace]
        if self._name:
            events = [event for event in events if event.record.key.name == self._name]
        if events:
            self._waiting.extend(events)
            self._rouse()

    def forget(self, compacted: int) -> None:
        """End it if what it should hear next has left the window; called by the store alone."""
        if self._waiting and self._waiting[0].revision <= compacted:
            self.lost = self._waiting[0].revision - 1
            self._waiting.clear()
            self.close()

    def end(self, revision: int) -> None:
        """Close it; it was told all changes until a revision.  Called by the store alone."""
        if not self.ended:
            self.complete_until = revision
            self.close()

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

    @property
    def next_revision(self) -> int | None:
        """The revision of the first change that waits; None when all is taken."""
        return self._waiting[0].revision if self._waiting else None

    async def take(self, seconds: float) -> list[Event]:
        """At most ``MOST`` changes; waits up to ``seconds`` for the first, then answers []."""
        if self._waiting:
            await asyncio.sleep(0)  # a watcher that never has to wait lets others have their turn
        elif not self.ended:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(seconds, self._rouse)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        return list(self._taken())

    def _taken(self) -> Iterator[Event]:
        size = 0
        for _ in range(min(MOST, len(self._waiting))):
            size += self._waiting[0].record.size
            yield self._waiting.popleft()
            if size >= MOST_BYTES:
                return
