"""Rewrites the metadata of an untrusted qcow2 file in place, so that it is plain.

A plain file has our header, no cluster that is used twice, and new reference counts, as if
``qemu-img convert`` had written it.  Files that were written by ``qemu-img convert`` have such
clusters already, so that it suffices to check and rewrite the metadata, without reading and writing
the data.  All other files are left to ``convert``.
"""

import array
import os
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

from corral.node.images import qcow
from corral.node.images.error import invalid_disk

_CLUSTER_BITS = 16
_CLUSTER = 1 << _CLUSTER_BITS
_COPIED = 1 << 63
_COMPRESSED = 1 << 62
_ZERO = 1
_OFFSET = 0x00FFFFFFFFFFFE00
_REFCOUNTS_PER_BLOCK = _CLUSTER // 2
"""Refcounts in a refcount block, 16 bits each."""
_EXTENDED_L2 = 1 << 4
"""Incompatible feature bit: L2 entries of 128 bits."""


class NotPlain(Exception):
    """The file needs a conversion."""


@dataclass(slots=True)
class _Layout:
    """The metadata of a file that is checked.

    used: for each cluster whether it is used.
    unmarked: offsets of L2 tables with entries that lack the COPIED flag.
    obstacle: why the file cannot be made plain; empty if it can.
    """

    name: str
    header: qcow.Header
    file_size: int
    entries: int
    used: bytearray
    unmarked: list[int] = field(default_factory=list)
    obstacle: str = ""

    @property
    def cluster(self) -> int:
        return 1 << self.header.cluster_bits


def make_plain(path: Path, name: str) -> None:
    """Make a qcow2 file that has passed ``qcow.inspect`` plain.

    May be interrupted at any step and repeated.  Raises NotPlain, with the file unchanged, and
    ImageError ``InvalidDisk`` with ``name`` for a truncated file: QEMU would read zeros there, and
    only the guest would notice.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        layout = _layout(descriptor, name)
        tables = _l1_table(descriptor, layout)
        for offset in filter(None, tables):
            _check_l2(_l2_table(descriptor, offset, layout), offset, layout)
        if layout.obstacle:
            raise NotPlain(layout.obstacle)
        _write(descriptor, layout, tables)
    finally:
        os.close(descriptor)


def _layout(descriptor: int, name: str) -> _Layout:
    header = qcow.read_header(os.pread(descriptor, 512, 0))
    if header.incompatible & _EXTENDED_L2:
        raise NotPlain("extended L2 entries")
    if header.cluster_bits < _CLUSTER_BITS:  # bounds the memory for ``used``
        raise NotPlain("small clusters")
    cluster = 1 << header.cluster_bits
    entries = -(-header.size // (cluster * (cluster // 8)))
    file_size = os.fstat(descriptor).st_size
    layout = _Layout(name, header, file_size, entries, bytearray(-(-file_size // cluster)))
    if header.l1_entries < entries:
        raise NotPlain("an L1 table that is too short")
    if header.cluster_bits != _CLUSTER_BITS or header.snapshots or header.incompatible:
        layout.obstacle = "its header"
    return layout


def _l1_table(descriptor: int, layout: _Layout) -> list[int]:
    """Return the offsets of the L2 tables; mark the clusters of header and tables as used."""
    _use(layout, 0)
    start = layout.header.l1
    for offset in range(start, start + layout.entries * 8, layout.cluster):
        _use(layout, offset)
    tables = []
    for entry in _read(descriptor, start, layout.entries, layout):
        if entry & ~(_OFFSET | _COPIED):
            raise NotPlain("its L1 table")
        offset = entry & _OFFSET
        if offset:
            _use(layout, offset)
        tables.append(offset)
    return tables


def _l2_table(descriptor: int, offset: int, layout: _Layout) -> "array.array[int]":
    """Read an L2 table; none is kept in memory, since their total grows with the disk."""
    return _read(descriptor, offset, layout.cluster // 8, layout)


def _check_l2(table: "array.array[int]", offset: int, layout: _Layout) -> None:
    """Mark the clusters of an L2 table as used, and record what needs a rewrite or conversion."""
    is_marked = True
    allowed = _OFFSET | _COPIED | (_ZERO if layout.header.version > 2 else 0)
    compressed_offset = (1 << (62 - (layout.header.cluster_bits - 8))) - 1
    for entry in filter(None, table):
        if entry & _COMPRESSED:
            layout.obstacle = "compressed clusters"
            if entry & compressed_offset >= layout.file_size:
                raise _truncated(layout)
        elif entry & ~allowed:
            layout.obstacle = "one of its L2 tables"
        elif cluster := entry & _OFFSET:
            _use(layout, cluster)
            is_marked = is_marked and bool(entry & _COPIED)
    if not is_marked:
        layout.unmarked.append(offset)


def _mark(table: "array.array[int]") -> None:
    """Set the COPIED flag of all entries: each cluster has a refcount of one."""
    for index, entry in enumerate(table):
        if entry & _OFFSET:
            table[index] = entry | _COPIED


def _use(layout: _Layout, offset: int) -> None:
    """Mark a cluster as used.  Raises ImageError if it lies outside the file."""
    number, rest = divmod(offset, layout.cluster)
    if number >= len(layout.used):
        raise _truncated(layout)
    if rest or layout.used[number]:
        layout.obstacle = "clusters that are used twice"
    layout.used[number] = 1


def _truncated(layout: _Layout) -> Exception:
    return invalid_disk(
        f"{layout.name} is a damaged qcow2 file: it is cut short, and what it refers to is missing",
        "fetch or make it again",
    )


def _read(descriptor: int, offset: int, count: int, layout: _Layout) -> "array.array[int]":
    content = os.pread(descriptor, count * 8, offset)
    if len(content) != count * 8:
        raise _truncated(layout)
    numbers = array.array("Q", content)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _bytes(numbers: "array.array[int]") -> bytes:
    copied = array.array("Q", numbers)
    if sys.byteorder == "little":
        copied.byteswap()
    return copied.tobytes()


def _write(descriptor: int, layout: _Layout, tables: list[int]) -> None:
    """Write refcounts behind the data, then the tables, and the header last."""
    first = len(layout.used)
    blocks = _refcount_blocks(first)
    table_clusters = -(-blocks * 8 // _CLUSTER)
    total = first + table_clusters + blocks
    counts = bytearray(blocks * _CLUSTER)
    counts[1 : 2 * total : 2] = layout.used + bytes([1]) * (table_clusters + blocks)
    offsets = [(first + table_clusters + number) * _CLUSTER for number in range(blocks)]
    os.ftruncate(descriptor, total * _CLUSTER)
    os.pwrite(descriptor, struct.pack(f">{blocks}Q", *offsets), first * _CLUSTER)
    os.pwrite(descriptor, counts, offsets[0])
    for offset in layout.unmarked:
        table = _l2_table(descriptor, offset, layout)
        _mark(table)
        os.pwrite(descriptor, _bytes(table), offset)
    entries = array.array("Q", (offset | _COPIED if offset else 0 for offset in tables))
    length = -(-layout.entries * 8 // _CLUSTER) * _CLUSTER
    os.pwrite(descriptor, _bytes(entries).ljust(length, b"\0"), layout.header.l1)
    header = qcow.header(
        layout.header.size,
        qcow.Tables(
            l1=layout.header.l1,
            l1_entries=layout.entries,
            refcounts=first * _CLUSTER,
            refcount_clusters=table_clusters,
        ),
    )
    os.pwrite(descriptor, header.ljust(_CLUSTER, b"\0"), 0)


def _refcount_blocks(clusters: int) -> int:
    """Return the number of refcount blocks for a file, the blocks and their table included."""
    blocks = 0
    while True:
        total = clusters + blocks + -(-blocks * 8 // _CLUSTER)
        needed = -(-total // _REFCOUNTS_PER_BLOCK)
        if needed == blocks:
            return blocks
        blocks = needed
