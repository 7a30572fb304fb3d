"""Disk space that is kept for when there is none: deleting objects and starting take some, too.

A file of the data directory holds it, whose blocks are nobody else's.  It is given up piece by
piece, since others write to the same disk, and made whole once there is room again.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

BYTES: Final = 16 << 20
_SHARE: Final = 8
"""It takes no more than this part of a small file system.

On one of 48 MB that is more than the 4 MB which SQLite's write-ahead log takes once more when it is
moved into the database: that begins by itself, and would take all that was kept.
"""
_PIECE: Final = 32 << 10
"""What the end of a small object takes: others write to the disk, too, and take what is left."""
_KEEP_SECONDS: Final = 30
LEAST: Final = 1 << 20
"""Free bytes below which a manager could not start."""


class Reserve:
    """The reserve in a file; several processes may give it up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    @property
    def size(self) -> int:
        """What is left of it, in bytes."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def give(self) -> bool:
        """Give a piece up; False where nothing is left."""
        with self._lock, suppress(OSError):
            if left := self.size:
                os.truncate(self._path, max(0, left - _PIECE))
                return True
        return False

    def make_way(self) -> None:
        """Give up as much as a manager needs to start, where the disk is full."""
        while self._free() < LEAST and self.give():
            pass

    def fill(self) -> bool:
        """Make it whole where the disk has room for twice as much; whether it is whole."""
        with self._lock, suppress(OSError):
            wanted = self._whole()
            missing = wanted - self.size
            if missing > 0 and self._free() > wanted + missing:
                self._take(wanted)
            return self.size >= wanted
        return False

    async def keep(self) -> None:
        """Make it whole, and again some time after it was given up, until cancelled."""
        while True:
            await asyncio.to_thread(self.fill)
            await asyncio.sleep(_KEEP_SECONDS)

    def _take(self, wanted: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, wanted)
        finally:
            os.close(descriptor)

    def _whole(self) -> int:
        found = os.statvfs(self._path.parent)
        return min(BYTES, found.f_blocks * found.f_frsize // _SHARE)

    def _free(self) -> int:
        """What this user can still write; none where that cannot be told."""
        with suppress(OSError):
            found = os.statvfs(self._path.parent)
            return found.f_bavail * found.f_frsize
        return 0
