"""What lies beside the store: whether it tells that one is missing, and who may read it."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corral.config import Layout
from corral.store import offline


def unknown(layout: Layout) -> str:
    """What is there of which no store tells any more, in words; empty where all is well.

    A data directory whose store was emptied or lost is not a new one.
    """
    if not offline.is_empty(layout.store):
        return ""
    volumes = sum(1 for _ in _entries(layout.storage / "volumes"))
    found = [_counted(len(layout.machines()), "machine"), _counted(volumes, "volume of claims")]
    if layout.options.exists():
        found.append("what an earlier manager was told")
    return ", ".join(filter(None, found))


def _counted(number: int, what: str) -> str:
    first, _, rest = what.partition(" ")
    many = first if number == 1 else f"{first}s"
    return f"{number} {many} {rest}".rstrip() if number else ""


def _entries(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from directory.iterdir()


def make_private(layout: Layout) -> None:
    """Let nobody else look into what is ours, also where the data directory was made for all.

    That one stays as it is: it may hold more than corral.  What somebody else owns, too.
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
