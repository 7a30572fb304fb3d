"""Small state files: atomic replacement, journals, and reading that tolerates damage."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

LONGEST_JOURNAL: Final = 64 << 10
"""Size of a journal at which the next line replaces it."""
_ADVICE_BYTES: Final = 128 << 10
"""Bytes of one advice: Linux reads at most the disk's ``read_ahead_kb`` for each."""
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file atomically.

    ``durable``: the content survives a power cut once this returns.  Raises OSError, for instance
    if the disk is full; the old content stays then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(_create(temporary, mode), "wb") as file:
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


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file.  Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_ahead(path: Path) -> None:
    """Let the kernel read a whole file into the page cache, in the background.

    For a caller with random access, who would wait for the disk at each page: SQLite's check of a
    store of 21 MB took 0.3 s, and takes 0.03.  Not for a file that this process has locked, as
    SQLite does: closing it here releases the locks (fcntl(2)).
    """
    with suppress(OSError), path.open("rb") as file:  # only an optimization
        for start in range(0, os.fstat(file.fileno()).st_size, _ADVICE_BYTES):
            os.posix_fadvise(file.fileno(), start, _ADVICE_BYTES, os.POSIX_FADV_WILLNEED)


def append_state(path: Path, line: bytes) -> None:
    """Append a state to a journal, whose last whole line is the current state.

    Takes a tenth of the time of ``replace``, after which file systems flush the new file to disk.
    The state survives a kill of the process, but maybe not a power cut.  Raises OSError, for
    instance if the disk is full; the state before stays current then.
    """
    descriptor = os.open(path, _APPENDING, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size <= LONGEST_JOURNAL:
            # A newline before it, too: a process killed while writing may have left part of a line.
            text = b"%b%b\n" % (b"\n" if size else b"", line)
            if os.write(descriptor, text) == len(text):
                return
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
    replace(path, line + b"\n")


def read_state(path: Path, type_: type[T]) -> T | None:
    """Read the last state of a journal, or a JSON file; None as ``read_json``."""
    return _read(path, _last_line, type_)


def _last_line(text: bytes) -> bytes:
    """Return the last line with a newline, else everything."""
    *whole, rest = text.split(b"\n")
    return next(filter(None, reversed(whole)), rest)


def _create(path: Path, mode: int) -> int:
    """Create a file; remove one that is left of an earlier process with the same id."""
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
    """Make the entries of a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def untrusted(path: Path) -> str:
    """Return why others may have written a file; "" if only its owner can.

    The owner must be this user or root.  Raises OSError.
    """
    return untrusted_stat(path.stat())


def untrusted_stat(found: os.stat_result) -> str:
    """Return the same as ``untrusted`` for a stat result."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def read_json(path: Path, type_: type[T]) -> T | None:
    """Read a JSON file; None if it is missing or invalid."""
    return _read(path, bytes, type_)


def _read(path: Path, part: Callable[[bytes], bytes], type_: type[T]) -> T | None:
    try:
        return msgspec.json.decode(part(path.read_bytes()), type=type_)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # damaged by a crash or an edit: the same as missing
