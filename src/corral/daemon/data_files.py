"""Files beside the store: whether they show that the store was lost, and their permissions."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corral.config import Layout
from corral.store import offline


def unknown(layout: Layout) -> str:
    """Describe data that belongs to a lost store; return "" if there is none.

    A data directory whose store was emptied or lost is not a new one.
    """
    if not offline.is_empty(layout.store):
        return ""
    volumes = sum(1 for _ in _entries(layout.storage / "volumes"))
    found = [_counted(len(layout.machines()), "machine"), _counted(volumes, "volume of claims")]
    if layout.options.exists():
        found.append("options of an earlier manager")
    return ", ".join(filter(None, found))


def _counted(number: int, what: str) -> str:
    first, _, rest = what.partition(" ")
    many = first if number == 1 else f"{first}s"
    return f"{number} {many} {rest}".rstrip() if number else ""


def _entries(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from directory.iterdir()


def make_private(layout: Layout) -> None:
    """Make our files private, also in a data directory that everybody may read.

    The directory itself stays as it is, since it may hold more than corral, and so do files of
    other users.
    """
    directories = layout.pki, layout.images, layout.storage, layout.nodes, layout.network
    for each in (*directories, layout.cache, layout.log, *layout.root.glob("corral.log.*")):
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
