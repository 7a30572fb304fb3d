"""What waits to be sent to those who watch: bounded for all together, by cutting off who is slow.

A watcher that does not read holds what it is to be told next, and what lies in its connection's
buffers.  Bytes that several of them wait for are the same and counted once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


class Backlog:
    """Knows what waits; where it is too much, it cuts off who has waited longest.

    It begins with the user of whom most wait, so that nobody loses a watch to somebody else's.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.size = 0
        self._most = most
        self._holders: dict[int, int] = {}
        """How many wait for the same bytes, by the identity of these."""
        self._users: dict[str, dict[_Waiting, None]] = {}

    @contextmanager
    def hold(self, user: str, piece: bytes, cut: Callable[[], None]) -> Iterator[None]:
        """Count a piece while the block lasts; ``cut`` tears its connection down."""
        waiting = _Waiting(piece, cut)
        self._add(user, waiting)
        try:
            if self.size > self._most:
                self._make_room()
            yield
        finally:
            self._remove(user, waiting)

    def _add(self, user: str, waiting: _Waiting) -> None:
        self._users.setdefault(user, {})[waiting] = None
        holders = self._holders[id(waiting.piece)] = self._holders.get(id(waiting.piece), 0) + 1
        self.size += BUFFERED_BYTES + (len(waiting.piece) if holders == 1 else 0)

    def _remove(self, user: str, waiting: _Waiting) -> None:
        """It is no more, unless it was cut off already."""
        mine = self._users.get(user, {})
        if waiting not in mine:
            return
        del mine[waiting]
        if not mine:
            del self._users[user]
        address = id(waiting.piece)
        self._holders[address] -= 1
        self.size -= BUFFERED_BYTES + (0 if self._holders[address] else len(waiting.piece))
        if not self._holders[address]:
            del self._holders[address]

    def _make_room(self) -> None:
        while self.size > self._most:
            user = max(self._users, key=lambda name: len(self._users[name]))
            slowest = next(iter(self._users[user]))
            self._remove(user, slowest)
            slowest.cut()
            log.warning("watch cut off: too much waits to be sent", user=user)
