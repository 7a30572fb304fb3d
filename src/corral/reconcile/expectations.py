"""What a loop has done that its cache has not shown it yet.

A loop that looks at a cache which lags would do the same thing twice: create again what was
created, delete one more.  So it notes what it expects to see, counts what its informer brings, and
acts again only when nothing is outstanding (client-go's UIDTrackingControllerExpectations).

Loops key them by the uid of the object that they act for: a name may be given again, and the new
object of that name must not wait for what was expected of the old one.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EXPIRY_SECONDS = 300.0
"""After this long an expectation is given up: the event that it waited for was lost."""


@dataclass(slots=True)
class _Outstanding:
    since: float
    creations: int
    deletions: set[str]


class Expectations(Generic[K]):
    """Outstanding creations (counted) and deletions (by uid) of each key."""

    def __len__(self) -> int:
        """How many keys wait for something, or did when they were looked at last."""
        return len(self._outstanding)

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` answers seconds that never run backwards, as the event loop's time."""
        self._monotonic = monotonic
        self._outstanding: dict[K, _Outstanding] = {}

    def expect(self, key: K, *, creations: int = 0, deletions: Iterable[str] = ()) -> None:
        """Wait for so many creations, and for the deletion of these uids."""
        self._forget_expired()
        self._outstanding.pop(key, None)
        outstanding = _Outstanding(self._monotonic(), creations, set(deletions))
        self._outstanding[key] = outstanding
        self._forget_if_met(key, outstanding)

    def created(self, key: K, count: int = 1) -> None:
        """The cache shows a creation; or it failed, and nothing will show."""
        if (outstanding := self._outstanding.get(key)) is not None:
            outstanding.creations -= count
            self._forget_if_met(key, outstanding)

    def deleted(self, key: K, uid: str) -> None:
        """The cache shows that an object goes; or its deletion failed."""
        if (outstanding := self._outstanding.get(key)) is not None:
            outstanding.deletions.discard(uid)
            self._forget_if_met(key, outstanding)

    def _forget_if_met(self, key: K, outstanding: _Outstanding) -> None:
        if outstanding.creations <= 0 and not outstanding.deletions:
            del self._outstanding[key]

    def _forget_expired(self) -> None:
        """So that nothing is kept of objects that are gone: the oldest come first."""
        before = self._monotonic() - EXPIRY_SECONDS
        while self._outstanding:
            key, oldest = next(iter(self._outstanding.items()))
            if oldest.since > before:
                return
            del self._outstanding[key]

    def unmet_seconds(self, key: K) -> float:
        """0 when the cache shows all; else the seconds after which waiting is given up."""
        outstanding = self._outstanding.get(key)
        if outstanding is None:
            return 0.0
        return max(0.0, outstanding.since + EXPIRY_SECONDS - self._monotonic())

    def forget(self, key: K) -> None:
        """What was expected does not come: nothing is waited for."""
        self._outstanding.pop(key, None)
