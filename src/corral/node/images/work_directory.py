"""A directory for files in the making: gone when the work ends, or found and removed later."""

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ABANDONED_SECONDS = 24 * 3600
_LOCK = ".lock"


@contextmanager
def workplace(directory: Path, blobs: Path) -> Iterator[Path]:
    """Make an own directory in ``directory``.

    Those of processes that were killed are removed first, as are layers in ``blobs`` that nobody
    has gone on fetching for a day.
    """
    with _alone(directory):
        _sweep(directory)
        _forget_layers(blobs)
        work = Path(tempfile.mkdtemp(dir=directory))
        lock = (work / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with lock:
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Between another's making of a directory and its locking nobody may sweep."""
    with (directory / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(directory: Path) -> None:
    for left in directory.iterdir():
        if left.is_dir() and not _in_use(left):
            shutil.rmtree(left, ignore_errors=True)


def _in_use(work: Path) -> bool:
    """Locks end with the process that held them, however it ended."""
    try:
        with (work / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _forget_layers(blobs: Path) -> None:
    oldest = time.time() - _ABANDONED_SECONDS
    for layer in blobs.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if layer.stat().st_mtime < oldest:
                layer.unlink()
