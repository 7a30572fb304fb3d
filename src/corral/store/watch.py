"""A watch: the pending changes of one watcher."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from corral.store.object_version import Event

MAX_EVENTS = 256
"""Changes returned at once: more would keep other watchers waiting."""
MAX_BYTES = 64 << 10
"""Bytes returned at once, but for a single larger change: the window can drop pending changes, not
returned ones."""


class Watch:
    """The changes of one kind after the revision ``since``, in order; close it when done.

    With a namespace or a name, only changes there wake the watcher.  Pending changes are shared
    with the store's window.  A watcher that lags so far that its next change has left the window is
    ended, and lists again: ``lost_after`` is then the revision before that change.  ``ended``: no
    further changes will come.  ``complete_until``: the revision up to which it received all
    changes, if the store ended it for another reason.
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
        self.lost_after: int | None = None
        self.complete_until: int | None = None
        self._since = since
        self._namespace = namespace
        self._name = name
        self._waiting: deque[Event] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._on_close = on_close

    def publish(self, events: Sequence[Event]) -> None:
        """Add changes.  Called by the store only."""
        if events and events[0].revision <= self._since:  # watches a future revision
            events = [event for event in events if event.revision > self._since]
        if self._namespace:
            events = [event for event in events if event.record.key.namespace == self._namespace]
        if self._name:
            events = [event for event in events if event.record.key.name == self._name]
        if events:
            self._waiting.extend(events)
            self._wake_up()

    def forget(self, compacted: int) -> None:
        """End the watch if its next change has left the window.  Called by the store only."""
        if self._waiting and self._waiting[0].revision <= compacted:
            self.lost_after = self._waiting[0].revision - 1
            self._waiting.clear()
            self.close()

    def end(self, revision: int) -> None:
        """Close the watch, complete up to a revision.  Called by the store only."""
        if not self.ended:
            self.complete_until = revision
            self.close()

    def close(self) -> None:
        """End the watch: pending changes can still be read, no more are added."""
        if not self.ended:
            self.ended = True
            self._on_close(self)
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @property
    def finished(self) -> bool:
        """True if it has ended and all changes were read."""
        return self.ended and not self._waiting

    @property
    def next_revision(self) -> int | None:
        """The revision of the first pending change, or None."""
        return self._waiting[0].revision if self._waiting else None

    async def next_events(self, seconds: float) -> list[Event]:
        """Return up to ``MAX_EVENTS`` changes; wait ``seconds`` for the first, else return []."""
        if self._waiting:
            await asyncio.sleep(0)  # a watcher that never has to wait must not starve others
        elif not self.ended:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(seconds, self._wake_up)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        return list(self._pop())

    def _pop(self) -> Iterator[Event]:
        size = 0
        for _ in range(min(MAX_EVENTS, len(self._waiting))):
            size += self._waiting[0].record.size
            yield self._waiting.popleft()
            if size >= MAX_BYTES:
                return
