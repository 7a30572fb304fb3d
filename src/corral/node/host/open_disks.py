"""Opens the files of a machine's disks, so that nothing else becomes of them while it runs.

What is opened to be written is locked (a shared flock), and the lock belongs to what was opened: to
each copy of the descriptor, wherever it is handed to.  So a disk is known to be in use for exactly
as long as some QEMU has it, however that ends, and nobody has to keep a list.  Who wants to turn a
disk into something else takes the lock alone, see ``corral.node.storage.storage.exclusive``.
"""

import errno
import fcntl
import os
from pathlib import Path


def opened(path: Path, flags: int) -> int:
    """A descriptor of a disk's file.  Raises OSError, also for one that is just being changed."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if flags & os.O_ACCMODE == os.O_RDWR:
            _lock(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # What was renamed between opening and locking has become a layer, never to be written.
        same = os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        same = False
    if not same:
        raise OSError(errno.EBUSY, "its volume is being cloned or resized at the moment", str(path))


def can_be_direct(path: Path) -> bool:
    """Whether a file can be read and written past the host's cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError:
        return False
    return True
