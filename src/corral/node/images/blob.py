"""A partial layer, which survives a lost connection and a killed process."""

import fcntl
import os
import threading
from pathlib import Path
from typing import Self

from corral import files


class BlobInUse(Exception):
    """Another pull, maybe of another process, has the layer open."""


class Blob:
    """A partial layer in a file; one pull at a time has it open.

    Use as a context manager; entering raises BlobInUse.  Methods block; ``write`` may run in a
    thread while the block is left.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._lock = threading.Lock()
        self.received = 0

    def __enter__(self) -> Self:
        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed = os.fstat(self._file.fileno()).st_nlink == 0
            if not removed:
                os.utime(self._file.fileno())  # keeps it from removal as abandoned
        except BlockingIOError as error:
            self._file.close()
            raise BlobInUse from error
        if removed:  # by the previous holder, between our open and flock
            self._file.close()
            raise BlobInUse
        self.received = self._file.seek(0, 2)
        if self.received > self._size:
            self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append received bytes; without effect after the block was left."""
        with self._lock:
            if not self._file.closed:
                self._file.write(chunk)
                self._file.flush()
                self.received += len(chunk)

    def restart(self) -> None:
        """Discard the received bytes."""
        self._file.truncate(0)
        self.received = 0

    def sha256(self) -> str:
        """Return the hexadecimal digest of the received bytes."""
        return files.sha256(self._path)


def seal(disk: Path) -> str:
    """Make a disk durable and read-only; return its digest."""
    digest = files.sha256(disk)
    disk.chmod(0o444)
    with disk.open("rb") as file:
        os.fsync(file.fileno())
    return digest
