"""Permissions of a data directory: its files are their owner's alone."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from corral.config import Layout, default_directory


def make_private(layout: Layout) -> None:
    """Make our files private, also in a data directory that everybody may read.

    The default directory is private, too.  Another one stays as it is, since it may hold more than
    corral, and so do files of other users.
    """
    directories = layout.pki, layout.images, layout.storage, layout.nodes, layout.network
    root = (layout.root,) if layout.root == default_directory() else ()
    for each in (*root, *directories, layout.cache, layout.log, *layout.root.glob("corral.log.*")):
        with suppress(OSError):
            _restrict(each)


def _restrict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~0o077)
    finally:
        os.close(descriptor)
