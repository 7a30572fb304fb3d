"""What the records of all volumes say, remembered for as long as nobody else has changed one.

Whoever changes a storage holds its lock, and first makes the file of the lock one byte longer: a
hole, which a full disk has room for too.  Who finds the length that he left is the last one who
changed anything, and knows every record; everybody else reads them again.  A kill spoils nothing:
the count comes before the change, and what was remembered is gone with its process.
"""

import os
from collections.abc import Callable, Iterable

from corral.node.storage.disk_space import most_of
from corral.node.storage.volume import Stored


class Ledger:
    """The volumes as who holds the lock knows them.

    find: reads the record of one volume; volumes: those of all.
    """

    def __init__(
        self, find: Callable[[str], Stored | None], volumes: Callable[[], Iterable[Stored]]
    ) -> None:
        self._find = find
        self._read = volumes
        self._count = -1
        self._known: dict[str, Stored] | None = None
        self._most_bytes = 0

    def count(self, descriptor: int) -> None:
        """Let all others know that something is changed; the lock is held, by its file."""
        found = os.fstat(descriptor).st_size
        if found != self._count:
            self._known = None
        os.ftruncate(descriptor, found + 1)
        self._count = found + 1

    def look(self, *handles: str) -> None:
        """See what became of volumes, before the lock is let go."""
        known, self._known = self._known, None  # lest an error leave half of it
        if known is not None:
            for handle in handles:
                if (before := known.pop(handle, None)) is not None:
                    self._most_bytes -= most_of(before)
                if (found := self._find(handle)) is not None:
                    known[handle] = found
                    self._most_bytes += most_of(found)
            self._known = known

    def volumes(self) -> Iterable[Stored]:
        """All volumes; the lock is held."""
        if self._known is None:
            known = {each.handle: each for each in self._read()}
            self._known, self._most_bytes = known, sum(map(most_of, known.values()))
        return self._known.values()

    def most_bytes(self) -> int:
        """What all volumes can come to occupy together; their files are not looked at for it."""
        self.volumes()
        return self._most_bytes
