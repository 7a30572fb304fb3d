"""Reserved disk space: on a full disk, deleting objects and starting need some.

A file in the data directory holds it.  It is released piece by piece, since other programs write to
the same disk, and filled again once there is space.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

BYTES: Final = 16 << 20
_SHARE: Final = 8
"""The reserve is at most this fraction of a small file system.

Of 48 MB that is more than the 4 MB by which the database grows when SQLite checkpoints its
write-ahead log: SQLite starts that by itself, and would use up the whole reserve.
"""
_PIECE: Final = 32 << 10
"""Bytes that deleting a small object needs; the rest stays out of reach of other programs."""
_KEEP_SECONDS: Final = 30
LEAST: Final = 1 << 20
"""Free bytes below which a manager could not start."""


class Reserve:
    """The reserve in a file; several processes may release it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    @property
    def size(self) -> int:
        """The remaining size in bytes."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def give(self) -> bool:
        """Release a piece; return False if nothing is left."""
        with self._lock, suppress(OSError):
            if left := self.size:
                os.truncate(self._path, max(0, left - _PIECE))
                return True
        return False

    def make_way(self) -> None:
        """Release as much as a manager needs to start on a full disk."""
        while self._free() < LEAST and self.give():
            pass

    def fill(self) -> bool:
        """Fill the reserve if the disk has space for twice as much; return whether it is full."""
        with self._lock, suppress(OSError):
            full = self._full_size()
            missing = full - self.size
            if missing > 0 and self._free() > full + missing:
                self._allocate(full)
            return self.size >= full
        return False

    async def keep(self) -> None:
        """Fill the reserve now and after each release, until cancelled."""
        while True:
            await asyncio.to_thread(self.fill)
            await asyncio.sleep(_KEEP_SECONDS)

    def _allocate(self, size: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def _full_size(self) -> int:
        found = os.statvfs(self._path.parent)
        return min(BYTES, found.f_blocks * found.f_frsize // _SHARE)

    def _free(self) -> int:
        """Return the bytes that this user can still write; 0 if unknown."""
        with suppress(OSError):
            found = os.statvfs(self._path.parent)
            return found.f_bavail * found.f_frsize
        return 0
