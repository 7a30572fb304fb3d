"""Reflinks: copies of a file that share its blocks until one is written (XFS and Btrfs)."""

import errno
import fcntl
import os
from pathlib import Path

_FICLONE = 0x40049409
_UNSUPPORTED = frozenset(
    {errno.EOPNOTSUPP, errno.EINVAL, errno.EXDEV, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
)


def reflink(source: Path, target: Path) -> bool:
    """Create ``target`` as a reflink; False, without a file, if the file system cannot.

    Raises OSError for all else, as for a full disk.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as from_, os.fdopen(os.open(target, flags, 0o600), "wb") as to:
        try:
            fcntl.ioctl(to.fileno(), _FICLONE, from_.fileno())
        except OSError as error:
            target.unlink()
            if error.errno in _UNSUPPORTED:
                return False
            raise
        os.fsync(to.fileno())
    return True
