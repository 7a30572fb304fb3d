"""Opens disk files, and locks those that QEMU writes.

A file that is opened for writing gets a shared flock, which belongs to the open file description:
to each copy of the descriptor, whichever process has it.  So a disk counts as in use exactly as
long as a QEMU has it open, however that ends, without any bookkeeping.  Code that changes a disk
takes an exclusive lock, see ``corral.node.storage.disk_locks``.
"""

import errno
import fcntl
import os
from pathlib import Path


def opened(path: Path, flags: int, *, leased: bool = False) -> int:
    """Open a disk's file; return the descriptor.

    leased: whether the machine has a lease of the disk, which stands for the flock: NFS would take
    an flock for a lock of the whole file, which keeps QEMU's own locks out.
    Raises OSError, EBUSY while it is being changed.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if flags & os.O_ACCMODE == os.O_RDWR and not leased:
            _lock(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # A file that was renamed between open and flock has become a backing file: never write to
        # it.
        is_same_file = os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        is_same_file = False
    if not is_same_file:
        raise OSError(errno.EBUSY, "its volume is being cloned or resized at the moment", str(path))


def can_be_direct(path: Path) -> bool:
    """Report whether a file supports O_DIRECT."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError:
        return False
    return True
