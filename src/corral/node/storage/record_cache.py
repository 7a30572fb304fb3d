"""A cache of all volume records, valid until another process changes one.

A process that changes a storage locks it, and first extends the lock file by one byte (a hole, so
that it works on a full disk too).  A process that finds the length it left made the last change,
and its cache is valid; otherwise it reads the records again.  A kill is harmless: the length grows
before the change, and the cache dies with its process.
"""

import os
from collections.abc import Callable, Iterable

from corral.node.storage.disk_space import max_bytes_of
from corral.node.storage.volume import StoredVolume


class RecordCache:
    """Caches volume records; all methods need the storage's lock.

    find: reads the record of one volume; volumes: reads all.
    """

    def __init__(
        self,
        find: Callable[[str], StoredVolume | None],
        volumes: Callable[[], Iterable[StoredVolume]],
    ) -> None:
        self._find = find
        self._read = volumes
        self._lock_length = -1
        self._cached: dict[str, StoredVolume] | None = None
        self._max_bytes = 0

    def begin_change(self, lock_descriptor: int) -> None:
        """Invalidate the caches of other processes, and this one if another changed something."""
        length = os.fstat(lock_descriptor).st_size
        if length != self._lock_length:
            self._cached = None
        os.ftruncate(lock_descriptor, length + 1)
        self._lock_length = length + 1

    def refresh(self, *handles: str) -> None:
        """Read the records of changed volumes again, before the lock is released."""
        cached, self._cached = self._cached, None  # an error must not leave half an update
        if cached is not None:
            for handle in handles:
                if (before := cached.pop(handle, None)) is not None:
                    self._max_bytes -= max_bytes_of(before)
                if (found := self._find(handle)) is not None:
                    cached[handle] = found
                    self._max_bytes += max_bytes_of(found)
            self._cached = cached

    def volumes(self) -> Iterable[StoredVolume]:
        """Return all volumes."""
        if self._cached is None:
            cached = {each.handle: each for each in self._read()}
            self._cached, self._max_bytes = cached, sum(map(max_bytes_of, cached.values()))
        return self._cached.values()

    def max_bytes(self) -> int:
        """Return the bytes that all volumes can allocate together; needs no stat of their files."""
        self.volumes()
        return self._max_bytes
