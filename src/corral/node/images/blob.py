"""A layer on its way in: what has arrived of it outlives a lost connection and a killed process."""

import fcntl
import hashlib
import os
import threading
from pathlib import Path
from typing import Self


class Busy(Exception):
    """Another pull, perhaps of another process, has the layer open."""


class Blob:
    """A partly fetched layer in ``path``; one pull at a time may have it open.

    Use as a context manager; entering raises Busy.  Methods block; ``write`` may run in a thread
    while the block is left.
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
                os.utime(self._file.fileno())  # it is not abandoned
        except BlockingIOError as error:
            self._file.close()
            raise Busy from error
        if removed:  # by the pull that had it, between our opening and locking it
            self._file.close()
            raise Busy
        self.received = self._file.seek(0, 2)
        if self.received > self._size:
            self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._file.close()

    def write(self, piece: bytes) -> None:
        """Append what has arrived; without effect once the block was left."""
        with self._lock:
            if not self._file.closed:
                self._file.write(piece)
                self._file.flush()
                self.received += len(piece)

    def restart(self) -> None:
        """Forget what has arrived."""
        self._file.truncate(0)
        self.received = 0

    def sha256(self) -> str:
        """The digest of all that has arrived, in hexadecimal."""
        return file_sha256(self._path)


def file_sha256(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(disk: Path) -> str:
    """Make a disk durable and read-only; answer its digest."""
    digest = file_sha256(disk)
    disk.chmod(0o444)
    with disk.open("rb") as file:
        os.fsync(file.fileno())
    return digest
