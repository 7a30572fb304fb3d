"""Temporary work directories, removed when the work ends, or later if the process was killed."""

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
def work_directory(directory: Path, blobs: Path) -> Iterator[Path]:
    """Create a work directory below ``directory``.

    Removes those of killed processes, and layers in ``blobs`` that were not resumed for a day.
    """
    with _locked(directory):
        _remove_abandoned(directory)
        _remove_old_layers(blobs)
        work = Path(tempfile.mkdtemp(dir=directory))
        lock = (work / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with lock:
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock, so that no directory is removed between its creation and its own flock."""
    with (directory / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_abandoned(directory: Path) -> None:
    for each in directory.iterdir():
        if each.is_dir() and not _in_use(each):
            shutil.rmtree(each, ignore_errors=True)


def _in_use(work: Path) -> bool:
    """Report whether a process holds the flock, which ends with the process."""
    try:
        with (work / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _remove_old_layers(blobs: Path) -> None:
    oldest = time.time() - _ABANDONED_SECONDS
    for layer in blobs.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if layer.stat().st_mtime < oldest:
                layer.unlink()
