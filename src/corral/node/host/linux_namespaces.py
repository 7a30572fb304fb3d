"""Linux namespaces of the calling thread."""

import ctypes
import os
from typing import Final

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces (unshare(2)).  Raises OSError."""
    check(_libc.unshare(flags))


def enter(descriptor: int, flag: int) -> None:
    """Move the calling thread into a namespace (setns(2)).  Raises OSError."""
    check(_libc.setns(descriptor, flag))


def check(result: int) -> None:
    """Raise OSError for the result of a failed call of libc."""
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
