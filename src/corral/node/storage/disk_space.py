"""Space accounting of a storage: capacity, provisioned, used.

Volumes are thin but guaranteed: the sum of their possible growth has to fit into the free space, so
that no guest meets a full host disk because of another.  Blocks are counted as the file system
counts them, and a layer that many volumes share is counted once.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from corral.node.storage.saved_memory import SavedMemory
from corral.node.storage.volume import StoredVolume

_GiB = 1 << 30
_LARGEST_RESERVE = 2 * _GiB
_RESERVE_SHARE = 20
_TABLES_SHARE = 4096
_SMALLEST_TABLES = 1 << 20


@dataclass(frozen=True, slots=True)
class Space:
    """A file system: its size and its free space, in bytes."""

    total: int
    free: int

    @property
    def reserve(self) -> int:
        """Bytes that are not provisioned, since other programs write to the file system too."""
        return min(self.total // _RESERVE_SHARE, _LARGEST_RESERVE)

    @property
    def available(self) -> int:
        """Bytes that volumes may still allocate."""
        return max(0, self.free - self.reserve)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a storage, in bytes.

    capacity_bytes: allocated by volumes or available to them.
    provisioned_bytes: the sum of the volumes' sizes.
    used_bytes: allocated by volumes.
    growth_bytes: what volumes may still allocate; free_bytes: what is available for that.
    """

    capacity_bytes: int
    provisioned_bytes: int
    used_bytes: int
    growth_bytes: int
    free_bytes: int


def space(directory: Path) -> Space:
    """Return the space of a directory's file system."""
    found = os.statvfs(directory)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def allocatable(present: Space, overcommit_percent: int = 0) -> int:
    """Return the bytes that all volumes may grow by together, overcommit included."""
    return present.available * (100 + overcommit_percent) // 100


def unallocated(
    volumes: Iterable[StoredVolume], present: Space, overcommit_percent: int = 0
) -> int:
    """Return the allocatable bytes less the possible growth of all volumes."""
    return allocatable(present, overcommit_percent) - sum(map(growth_of, volumes))


def measure(volumes: Iterable[StoredVolume], present: Space) -> Usage:
    """Return the usage of volumes; stats all of their files."""
    provisioned = growth = 0
    blocks: dict[tuple[int, int], int] = {}
    for volume in volumes:
        provisioned += volume.capacity_bytes
        growth += growth_of(volume)
        for each in (*volume.directory.iterdir(), SavedMemory(volume.directory).memory):
            try:
                found = each.stat(follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                continue
            blocks[(found.st_dev, found.st_ino)] = found.st_blocks * 512
    used = sum(blocks.values())
    return Usage(
        capacity_bytes=present.available + used,
        provisioned_bytes=provisioned,
        used_bytes=used,
        growth_bytes=growth,
        free_bytes=present.available,
    )


def growth_of(volume: StoredVolume) -> int:
    """Return the bytes that a volume may still allocate: its disk with metadata, saved memory."""
    most = max_bytes_of(volume)
    if volume.record.shares_blocks:  # any block may have to be copied on a write
        return most
    return max(
        0,
        most
        - allocated_bytes(volume.disk.path)
        - allocated_bytes(SavedMemory(volume.directory).memory),
    )


def max_bytes_of(volume: StoredVolume) -> int:
    """Return the largest allocation of a volume's disk, qcow2 metadata included."""
    return max_size(volume.capacity_bytes, is_raw=volume.record.format == "raw")


def max_size(capacity_bytes: int, *, is_raw: bool) -> int:
    """Return the largest allocation of a disk of that size; qcow2 adds metadata to the content."""
    return capacity_bytes + (
        0 if is_raw else max(_SMALLEST_TABLES, capacity_bytes // _TABLES_SHARE)
    )


def allocated_bytes(path: Path) -> int:
    """Return the allocated blocks of a file in bytes; 0 if it is missing."""
    try:
        return path.stat().st_blocks * 512
    except (FileNotFoundError, NotADirectoryError):
        return 0


def format_size(size: int) -> str:
    """Return a number of bytes with its unit, as ``1.5 GiB``."""
    for unit, factor in (("TiB", _GiB << 10), ("GiB", _GiB), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
