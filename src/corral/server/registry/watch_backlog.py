"""The bytes pending for watchers: bounded in total, by disconnecting the slowest watchers.

A watcher that does not read keeps its next chunk and its connection's buffers in memory.  A chunk
that several watchers wait for is shared, and counted once.  A chunk that is sent within a few
iterations of the event loop does not count: a change is published to all watchers in the same
iteration, and however many there are, none of them is slow.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

MAX_BYTES: Final = 64 << 20
"""Pending bytes of all watchers together."""
BUFFERED_BYTES: Final = 128 << 10
"""Bytes that a pending connection holds besides: copies in its buffers, plain and encrypted."""

GRACE_ITERATIONS: Final = 3
"""Iterations of the event loop: within two, a chunk is written to a connection that is ready."""

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Pending:
    user: str
    chunk: bytes
    abort: Callable[[], None]
    is_done: bool = False


@dataclass(slots=True, eq=False)
class _PendingBytes:
    """The pending chunks of one user's watchers, or of all, oldest first; ``size`` in bytes."""

    size: int = 0
    entries: dict[_Pending, None] = field(default_factory=dict)
    _counts: Counter[int] = field(default_factory=Counter)
    """Count of watchers that wait for a chunk, by the chunk's identity."""

    def add(self, entry: _Pending) -> None:
        self.entries[entry] = None
        self._counts[id(entry.chunk)] += 1
        is_first = self._counts[id(entry.chunk)] == 1
        self.size += BUFFERED_BYTES + (len(entry.chunk) if is_first else 0)

    def remove(self, entry: _Pending) -> None:
        del self.entries[entry]
        identity = id(entry.chunk)
        self._counts[identity] -= 1
        self.size -= BUFFERED_BYTES + (0 if self._counts[identity] else len(entry.chunk))
        if not self._counts[identity]:
            del self._counts[identity]


class Backlog:
    """Tracks pending chunks; over the limit, disconnects the watcher that has waited longest.

    It begins with the user who has most bytes pending, so that no user loses a watch to another's.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._all = _PendingBytes()
        self._users: dict[str, _PendingBytes] = {}
        self._recent: deque[list[_Pending]] = deque()
        """Chunks of the last iterations, which do not count yet, the oldest iteration first."""

    @property
    def size(self) -> int:
        """Pending bytes of all watchers."""
        return self._all.size

    @contextmanager
    def track(self, user: str, chunk: bytes, abort: Callable[[], None]) -> Iterator[None]:
        """Count a chunk as pending if the block lasts; ``abort`` aborts its connection."""
        entry = _Pending(user, chunk, abort)
        if not self._recent:
            self._recent.append([])
            asyncio.get_running_loop().call_soon(self._age)
        self._recent[-1].append(entry)
        try:
            yield
        finally:
            entry.is_done = True
            self._remove(entry)

    def _age(self) -> None:
        """Count the chunks that are pending for some iterations of the loop."""
        if len(self._recent) >= GRACE_ITERATIONS:
            for each in self._recent.popleft():
                if not each.is_done:
                    self._add(each)
            self._evict()
        if any(self._recent):
            self._recent.append([])
            asyncio.get_running_loop().call_soon(self._age)
        else:
            self._recent.clear()

    def _add(self, entry: _Pending) -> None:
        self._all.add(entry)
        self._users.setdefault(entry.user, _PendingBytes()).add(entry)

    def _remove(self, entry: _Pending) -> None:
        """Stop counting a chunk, if it was counted and not evicted already."""
        if entry not in self._all.entries:
            return
        self._all.remove(entry)
        self._users[entry.user].remove(entry)
        if not self._users[entry.user].entries:
            del self._users[entry.user]

    def _evict(self) -> None:
        while self.size > self._max_bytes:
            user = max(self._users, key=lambda name: self._users[name].size)
            slowest = next(iter(self._users[user].entries))
            self._remove(slowest)
            slowest.abort()
            log.warning("watch disconnected: too many bytes are pending", user=user)
