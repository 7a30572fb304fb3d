"""A layer on its way in: what has arrived of it outlives a lost connection and a killed process."""

import fcntl
import hashlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from corral.node.images.error import pull_failed


class Blob:
    """A partly fetched layer in ``path``; one process at a time may have it open.

    Use as a context manager.  Methods block; ``write`` may run in a thread while the block is left.
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
        except BlockingIOError as error:
            self._file.close()
            raise pull_failed(
                f"the layer {self._path.name} is being fetched by another process",
                "wait for it to end",
            ) from error
        self.received = self._file.seek(0, 2)
        if self.received > self._size:
            self.restart()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
