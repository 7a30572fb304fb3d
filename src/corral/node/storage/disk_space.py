"""How much a storage has, has promised, and uses.

A promise is kept: what every volume may still grow by has to fit into what is free, so that no
guest finds the disk of the host full because of another's.  Blocks are counted as the file system
counts them, and a layer that many volumes share is counted once.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from corral.node.storage.saved_memory import Place
from corral.node.storage.volume import Stored

_GiB = 1 << 30
_LARGEST_RESERVE = 2 * _GiB
_RESERVE_SHARE = 20
_TABLES_SHARE = 4096
_SMALLEST_TABLES = 1 << 20


@dataclass(frozen=True, slots=True)
class Space:
    """A file system: its size, and what is free of it, in bytes."""

    total: int
    free: int

    @property
    def reserve(self) -> int:
        """What is not promised to volumes, since others write here too."""
        return min(self.total // _RESERVE_SHARE, _LARGEST_RESERVE)

    @property
    def available(self) -> int:
        """What volumes may still take."""
        return max(0, self.free - self.reserve)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The state of a storage, in bytes.

    capacity_bytes: what its volumes could occupy if there were nothing else.
    promised_bytes: the sum of the volumes' sizes.
    used_bytes: what the volumes occupy.
    growth_bytes: what they may still come to occupy; free_bytes: what there is for that.
    """

    capacity_bytes: int
    promised_bytes: int
    used_bytes: int
    growth_bytes: int
    free_bytes: int


def space(directory: Path) -> Space:
    """What there is where a directory lies."""
    found = os.statvfs(directory)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def promisable(present: Space, overcommit_percent: int = 0) -> int:
    """What volumes may grow by together, where promises may exceed what is free by some percent."""
    return present.available * (100 + overcommit_percent) // 100


def left(volumes: Iterable[Stored], present: Space, overcommit_percent: int = 0) -> int:
    """What of that is promised to none of the volumes."""
    return promisable(present, overcommit_percent) - sum(map(growth_of, volumes))


def measure(volumes: Iterable[Stored], present: Space) -> Room:
    """Look at every volume's files."""
    promised = growth = 0
    blocks: dict[tuple[int, int], int] = {}
    for volume in volumes:
        promised += volume.capacity_bytes
        growth += growth_of(volume)
        for each in (*volume.directory.iterdir(), Place(volume.directory).memory):
            try:
                found = each.stat(follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                continue
            blocks[(found.st_dev, found.st_ino)] = found.st_blocks * 512
    used = sum(blocks.values())
    return Room(
        capacity_bytes=present.available + used,
        promised_bytes=promised,
        used_bytes=used,
        growth_bytes=growth,
        free_bytes=present.available,
    )


def growth_of(volume: Stored) -> int:
    """What a volume may still come to occupy: its disk with its tables, or a machine's memory."""
    most = most_of(volume)
    if volume.record.shares_blocks:  # each may have to be copied before it is written
        return most
    return max(0, most - occupied(volume.disk.path) - occupied(Place(volume.directory).memory))


def most_of(volume: Stored) -> int:
    """What a volume's disk can occupy with its tables."""
    return largest(volume.capacity_bytes, is_raw=volume.record.format == "raw")


def largest(capacity_bytes: int, *, is_raw: bool) -> int:
    """What a disk of that size can occupy: in qcow2 there are tables beside the content."""
    return capacity_bytes + (
        0 if is_raw else max(_SMALLEST_TABLES, capacity_bytes // _TABLES_SHARE)
    )


def occupied(path: Path) -> int:
    """The blocks of a file in bytes; none where it is missing."""
    try:
        return path.stat().st_blocks * 512
    except (FileNotFoundError, NotADirectoryError):
        return 0


def shown(size: int) -> str:
    """A number of bytes for people."""
    for unit, factor in (("TiB", _GiB << 10), ("GiB", _GiB), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
