"""Expectations: creations and deletions that a controller's cache has not shown yet.

A controller that reads a stale cache would act twice: create a replica again, delete one more.  So
it records what it expects to observe, counts what its informer delivers, and acts again only when
nothing is outstanding (Kubernetes' UIDTrackingControllerExpectations).

The key is the uid of the object that the controller acts for: a name may be reused, and the new
object must not wait for the expectations of the old one.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EXPIRY_SECONDS = 300.0
"""An expectation expires after this long: the event that it waited for was lost."""


@dataclass(slots=True)
class _Outstanding:
    since: float
    creations: int
    deletions: set[str]


class Expectations(Generic[K]):
    """Outstanding creations (counted) and deletions (by uid) of each key."""

    def __len__(self) -> int:
        """Return how many keys have expectations, also expired ones not yet dropped."""
        return len(self._outstanding)

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` returns seconds that never run backwards, as the event loop's time."""
        self._monotonic = monotonic
        self._outstanding: dict[K, _Outstanding] = {}

    def expect(self, key: K, *, creations: int = 0, deletions: Iterable[str] = ()) -> None:
        """Set the expectations of a key: so many creations, and the deletion of these uids."""
        self._forget_expired()
        self._outstanding.pop(key, None)
        outstanding = _Outstanding(self._monotonic(), creations, set(deletions))
        self._outstanding[key] = outstanding
        self._forget_if_met(key, outstanding)

    def creation_observed(self, key: K, count: int = 1) -> None:
        """Count creations that the cache shows, or that failed and will never show."""
        if (outstanding := self._outstanding.get(key)) is not None:
            outstanding.creations -= count
            self._forget_if_met(key, outstanding)

    def deletion_observed(self, key: K, uid: str) -> None:
        """Count a deletion that the cache shows, or that failed."""
        if (outstanding := self._outstanding.get(key)) is not None:
            outstanding.deletions.discard(uid)
            self._forget_if_met(key, outstanding)

    def _forget_if_met(self, key: K, outstanding: _Outstanding) -> None:
        if outstanding.creations <= 0 and not outstanding.deletions:
            del self._outstanding[key]

    def _forget_expired(self) -> None:
        """Drop expired entries, so that none of deleted objects stay: the oldest come first."""
        before = self._monotonic() - EXPIRY_SECONDS
        while self._outstanding:
            key, oldest = next(iter(self._outstanding.items()))
            if oldest.since > before:
                return
            del self._outstanding[key]

    def unmet_seconds(self, key: K) -> float:
        """Return 0 when all expectations are met, else the seconds until they expire."""
        outstanding = self._outstanding.get(key)
        if outstanding is None:
            return 0.0
        return max(0.0, outstanding.since + EXPIRY_SECONDS - self._monotonic())

    def forget(self, key: K) -> None:
        """Drop the expectations of a key that will not be met."""
        self._outstanding.pop(key, None)
