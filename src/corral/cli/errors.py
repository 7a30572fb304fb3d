"""Errors of commands, shown without a traceback."""

import errno
import os
from dataclasses import dataclass


@dataclass(eq=False)
class Problem(Exception):
    """An error for the user: what is wrong, and what to do about it."""

    message: str
    hint: str = ""
    exit_code: int = 1

    def __str__(self) -> str:
        return self.message


_HINTS = {
    errno.ENOENT: "Is the path right, and may the directory above it be written?",
    errno.EACCES: "Use another directory (--data-dir), or be the user that it belongs to.",
    errno.EPERM: "Use another directory (--data-dir), or be the user that it belongs to.",
    errno.EROFS: "The file system is read-only: --data-dir chooses another place.",
    errno.ENOSPC: "Free some space there, or choose another place with --data-dir.",
    errno.EDQUOT: "Your quota there is used up: --data-dir chooses another place.",
    errno.ENOTDIR: "A file stands where a directory belongs: move it away.",
    errno.EISDIR: "A directory stands where a file belongs: move it away.",
    errno.EEXIST: "Something else stands where corral keeps its own: move it away.",
}


def cause_of(error: Exception) -> Exception:
    """Return the error itself, or the first leaf of an exception group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def reason(error: OSError) -> str:
    """Return the operating system's text of an error, without asyncio's additions."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def from_os_error(error: OSError | ExceptionGroup[Exception]) -> Problem:
    """Return a Problem with file, reason and hint of an OSError.

    Raises the error itself if it is another one: a defect, to be shown with its traceback.
    """
    cause = cause_of(error)
    if not isinstance(cause, OSError):
        raise error
    where = f"{cause.filename}: " if cause.filename else ""
    hint = _HINTS.get(cause.errno or 0, "")
    return Problem(f"{where}{cause.strerror or cause}", hint)
