"""Small files that are replaced as a whole, and read without trust in what they hold."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

LONGEST_JOURNAL: Final = 64 << 10
"""Bytes of a journal that is begun anew with its next line."""
_ADVISED: Final = 128 << 10
"""Bytes of one advice: Linux heeds no more of it than the disk's ``read_ahead_kb``."""
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Put a file in place whole or not at all; nobody reads it but whom the mode lets.

    ``durable``: it survives a power cut once this returns.  Raises OSError, for instance where the
    disk is full; the old content is still there then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(_made(temporary, mode), "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def read_ahead(path: Path) -> None:
    """Have the system read a file as a whole and in order, beside what the caller does.

    Who reads it a page here and a page there would wait for the disk at each: SQLite's check of a
    store of 21 MB took 0.3 s, and takes 0.03.  Not for a file that this process has locked, as
    SQLite does: closing it here gives up the locks (fcntl(2)).
    """
    with suppress(OSError), path.open("rb") as file:  # it is only an advice
        for start in range(0, os.fstat(file.fileno()).st_size, _ADVISED):
            os.posix_fadvise(file.fileno(), start, _ADVISED, os.POSIX_FADV_WILLNEED)


def note(path: Path, line: bytes) -> None:
    """Add a state to a journal, of which the last whole line counts; only its owner can read it.

    Takes a tenth of the time of ``replace``, which has file systems bring the new file to the disk.
    What a process had written when it was killed stays; a power cut may take it.  Raises OSError,
    for instance where the disk is full; what was noted before still counts then.
    """
    descriptor = os.open(path, _APPENDING, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size <= LONGEST_JOURNAL:
            # the end before it, too: whoever was killed at the last line may not have ended it
            text = b"%b%b\n" % (b"\n" if size else b"", line)
            if os.write(descriptor, text) == len(text):
                return
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
    replace(path, line + b"\n")


def noted(path: Path, type_: type[T]) -> T | None:
    """The last state in a journal, or what a JSON file holds; None as of ``read_json``."""
    return _read(path, _last, type_)


def _last(text: bytes) -> bytes:
    """The last line that was ended, else all."""
    *whole, rest = text.split(b"\n")
    return next(filter(None, reversed(whole)), rest)


def _made(path: Path, mode: int) -> int:
    """A new file; what somebody who had this process id has left there is put away."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, mode)


def sync_file(path: Path) -> None:
    """Make a file's content survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def distrusted(path: Path) -> str:
    """Why what stands at a path may be a stranger's work; empty where only its owner wrote it.

    The owner must be this user, or root, whom nothing can be hidden from.  Raises OSError.
    """
    return stranger(path.stat())


def stranger(found: os.stat_result) -> str:
    """The same of what is known of a file already."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def read_json(path: Path, type_: type[T]) -> T | None:
    """What a JSON file holds; None where it is missing or holds anything else."""
    return _read(path, bytes, type_)


def _read(path: Path, part: Callable[[bytes], bytes], type_: type[T]) -> T | None:
    try:
        return msgspec.json.decode(part(path.read_bytes()), type=type_)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # cut by a crash, or spoilt by other hands: as good as absent
