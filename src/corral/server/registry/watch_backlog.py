"""What waits to be sent to those who watch: bounded for all together, by cutting off who is slow.

A watcher that does not read holds what it is to be told next, and what lies in its connection's
buffers.  Bytes that several of them wait for are the same and counted once.  Nobody waits whose
piece is taken within a few turns of the event loop, as that of each who reads: a change is told to
all of them in the same turn, and however many they are, none is slow.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

MOST_BYTES: Final = 64 << 20
"""Bytes that may wait for all watchers together."""
BUFFERED_BYTES: Final = 128 << 10
"""What a connection that waits may hold besides: copies of a part of it, plain and encrypted."""

TURNS: Final = 3
"""Of the event loop: within two, a piece is written to a connection that can take it."""

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Waiting:
    user: str
    piece: bytes
    cut: Callable[[], None]
    is_over: bool = False


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
        self._fresh: deque[list[_Waiting]] = deque()
        """Those that came in each of the latest turns, the oldest first."""

    @property
    def size(self) -> int:
        """Bytes that wait for all."""
        return self._all.size

    @contextmanager
    def hold(self, user: str, piece: bytes, cut: Callable[[], None]) -> Iterator[None]:
        """Count a piece if the block lasts; ``cut`` tears its connection down."""
        waiting = _Waiting(user, piece, cut)
        if not self._fresh:
            self._fresh.append([])
            asyncio.get_running_loop().call_soon(self._turn)
        self._fresh[-1].append(waiting)
        try:
            yield
        finally:
            waiting.is_over = True
            self._remove(waiting)

    def _turn(self) -> None:
        """Count those that wait since some turns of the loop."""
        if len(self._fresh) >= TURNS:
            for each in self._fresh.popleft():
                if not each.is_over:
                    self._add(each)
            self._make_room()
        if any(self._fresh):
            self._fresh.append([])
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._fresh.clear()

    def _add(self, waiting: _Waiting) -> None:
        self._all.add(waiting)
        self._users.setdefault(waiting.user, _Share()).add(waiting)

    def _remove(self, waiting: _Waiting) -> None:
        """It is no more, if it was counted, and unless it was cut off already."""
        if waiting not in self._all.waiting:
            return
        self._all.remove(waiting)
        self._users[waiting.user].remove(waiting)
        if not self._users[waiting.user].waiting:
            del self._users[waiting.user]

    def _make_room(self) -> None:
        while self.size > self._most:
            user = max(self._users, key=lambda name: self._users[name].size)
            slowest = next(iter(self._users[user].waiting))
            self._remove(slowest)
            slowest.cut()
            log.warning("watch cut off: too much waits to be sent", user=user)
