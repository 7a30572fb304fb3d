"""Linux namespaces of the calling thread, and mounts in them."""

import ctypes
import os
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
MS_BIND: Final = 0x1000
_MNT_DETACH: Final = 2

libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces (unshare(2)).  Raises OSError."""
    check(libc.unshare(flags))


def enter(descriptor: int, flag: int) -> None:
    """Move the calling thread into a namespace (setns(2)).  Raises OSError."""
    check(libc.setns(descriptor, flag))


def mount(
    source: str | None, target: str | Path, flags: int, kind: str = "", data: bytes = b""
) -> None:
    """Mount a file system, or change a mount (mount(2)).  Raises OSError."""
    check(
        libc.mount(
            source.encode() if source is not None else None,
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            data or None,
        )
    )


def unmount(target: str | Path) -> None:
    """Unmount a file system as soon as nobody uses it (umount2(2)).  Raises OSError."""
    check(libc.umount2(os.fsencode(target), _MNT_DETACH))


def check(result: int) -> None:
    """Raise OSError for the result of a failed call of libc."""
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
