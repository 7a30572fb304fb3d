"""Copies of a file that share its blocks until one of them is written: XFS and Btrfs can."""

import errno
import fcntl
import os
from pathlib import Path

_FICLONE = 0x40049409
_CANNOT = frozenset(
    {errno.EOPNOTSUPP, errno.EINVAL, errno.EXDEV, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
)


def reflink(source: Path, target: Path) -> bool:
    """Make ``target`` such a copy; False, and nothing made, where the file system cannot.

    Raises OSError for everything else, for instance where the disk is full.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as from_, os.fdopen(os.open(target, flags, 0o600), "wb") as to:
        try:
            fcntl.ioctl(to.fileno(), _FICLONE, from_.fileno())
        except OSError as error:
            target.unlink()
            if error.errno in _CANNOT:
                return False
            raise
        os.fsync(to.fileno())
    return True
