"""What waits to be sent to those who watch: bounded for all together, by cutting off who is slow.

A watcher that does not read holds what it is to be told next, and what lies in its connection's
buffers.  Bytes that several of them wait for are the same and counted once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

MOST_BYTES: Final = 64 << 20
"""Bytes that may wait for all watchers together."""
BUFFERED_BYTES: Final = 128 << 10
"""What a connection that waits may hold besides: copies of a part of it, plain and encrypted."""

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Waiting:
    piece: bytes
    cut: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Share:
    """What waits for one user's watchers, or for all, oldest first; ``size`` in bytes."""

    size: int = 0
    waiting: dict[_Waiting, None] = field(default_factory=dict)
    _holders: Counter[int] = field(default_factory=Counter)
    """How many wait for the same bytes, by the identity of these."""

    def add(self, waiting: _Waiting) -> None:
        self.waiting[waiting] = None
        self._holders[id(waiting.piece)] += 1
        is_first = self._holders[id(waiting.piece)] == 1
        self.size += BUFFERED_BYTES + (len(waiting.piece) if is_first else 0)

    def remove(self, waiting: _Waiting) -> None:
        del self.waiting[waiting]
        address = id(waiting.piece)
        self._holders[address] -= 1
        self.size -= BUFFERED_BYTES + (0 if self._holders[address] else len(waiting.piece))
        if not self._holders[address]:
            del self._holders[address]


class Backlog:
    """Knows what waits; where it is too much, it cuts off who has waited longest.

    It begins with the user for whom most bytes wait, so that nobody loses a watch to somebody
    else's.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._all = _Share()
        self._users: dict[str, _Share] = {}

    @property
    def size(self) -> int:
        """Bytes that wait for all."""
        return self._all.size

    @contextmanager
    def hold(self, user: str, piece: bytes, cut: Callable[[], None]) -> Iterator[None]:
        """Count a piece while the block lasts; ``cut`` tears its connection down."""
        waiting = _Waiting(piece, cut)
        self._all.add(waiting)
        self._users.setdefault(user, _Share()).add(waiting)
        try:
            if self.size > self._most:
                self._make_room()
            yield
        finally:
            self._remove(user, waiting)

    def _remove(self, user: str, waiting: _Waiting) -> None:
        """It is no more, unless it was cut off already."""
        if waiting not in self._all.waiting:
            return
        self._all.remove(waiting)
        self._users[user].remove(waiting)
        if not self._users[user].waiting:
            del self._users[user]

    def _make_room(self) -> None:
        while self.size > self._most:
            user = max(self._users, key=lambda name: self._users[name].size)
            slowest = next(iter(self._users[user].waiting))
            self._remove(user, slowest)
            slowest.cut()
            log.warning("watch cut off: too much waits to be sent", user=user)
