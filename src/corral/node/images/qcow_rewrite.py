"""Makes a foreign qcow2 file plain where it stands, if it is nearly that already.

A plain file was written by QEMU, as far as anybody can tell: our own header, every cluster of the
guest at one place of its own, and references counted anew.  A file that ``qemu-img convert`` wrote
has its clusters so already: only what says where they are is looked at and written again, which
spares reading and writing all of it.  Everything else is left to ``convert``.
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
_COUNTED = _CLUSTER // 2
"""References that a cluster of the count's own holds, 16 bits each."""
_LONG_ENTRIES = 1 << 4
"""The feature by which entries of second tables have twice the length."""


class NotPlain(Exception):
    """The file has something that has to be converted."""


@dataclass(slots=True)
class _Layout:
    """Where things are, of a file that is looked at.

    used: for each cluster whether it is used.
    unmarked: the second tables that do not say of all clusters that nobody else uses them.
    why_not: why the file cannot be made plain; empty as long as it can.
    """

    name: str
    header: qcow.Header
    file_size: int
    entries: int
    used: bytearray
    unmarked: list[int] = field(default_factory=list)
    why_not: str = ""

    @property
    def cluster(self) -> int:
        return 1 << self.header.cluster_bits


def make_plain(path: Path, name: str) -> None:
    """Make a qcow2 file plain; ``path`` must have passed ``qcow.inspect``.

    May be cut at any step and done again.  Raises NotPlain, and leaves the content as it was then,
    and ImageError ``InvalidDisk``, calling the file ``name``, for one that was cut short: QEMU
    takes what is missing for zeros, and the guest would find that out.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        layout = _layout(descriptor, name)
        tables = _first_table(descriptor, layout)
        for offset in filter(None, tables):
            _look_at(_table(descriptor, offset, layout), offset, layout)
        if layout.why_not:
            raise NotPlain(layout.why_not)
        _write(descriptor, layout, tables)
    finally:
        os.close(descriptor)


def _layout(descriptor: int, name: str) -> _Layout:
    header = qcow.read_header(os.pread(descriptor, 512, 0))
    if header.incompatible & _LONG_ENTRIES:
        raise NotPlain("long entries")
    if header.cluster_bits < _CLUSTER_BITS:  # a stranger's file could have more than fit in memory
        raise NotPlain("small clusters")
    cluster = 1 << header.cluster_bits
    entries = -(-header.size // (cluster * (cluster // 8)))
    file_size = os.fstat(descriptor).st_size
    layout = _Layout(name, header, file_size, entries, bytearray(-(-file_size // cluster)))
    if header.l1_entries < entries:
        raise NotPlain("a first table that is too short")
    if header.cluster_bits != _CLUSTER_BITS or header.snapshots or header.incompatible:
        layout.why_not = "its header"
    return layout


def _first_table(descriptor: int, layout: _Layout) -> list[int]:
    """Where the second tables are; what is used for them and the header is noted."""
    _use(layout, 0)
    start = layout.header.l1
    for offset in range(start, start + layout.entries * 8, layout.cluster):
        _use(layout, offset)
    tables = []
    for entry in _read(descriptor, start, layout.entries, layout):
        if entry & ~(_OFFSET | _COPIED):
            raise NotPlain("its first table")
        offset = entry & _OFFSET
        if offset:
            _use(layout, offset)
        tables.append(offset)
    return tables


def _table(descriptor: int, offset: int, layout: _Layout) -> "array.array[int]":
    """A second table; it is not kept, as all of them together grow with the disk."""
    return _read(descriptor, offset, layout.cluster // 8, layout)


def _look_at(table: "array.array[int]", offset: int, layout: _Layout) -> None:
    """Note what a second table uses, and whether it can stay as it is."""
    is_marked = True
    allowed = _OFFSET | _COPIED | (_ZERO if layout.header.version > 2 else 0)
    compressed_offset = (1 << (62 - (layout.header.cluster_bits - 8))) - 1
    for entry in filter(None, table):
        if entry & _COMPRESSED:
            layout.why_not = "compressed clusters"
            if entry & compressed_offset >= layout.file_size:
                raise _cut(layout)
        elif entry & ~allowed:
            layout.why_not = "one of its tables"
        elif cluster := entry & _OFFSET:
            _use(layout, cluster)
            is_marked = is_marked and bool(entry & _COPIED)
    if not is_marked:
        layout.unmarked.append(offset)


def _mark(table: "array.array[int]") -> None:
    """Let a second table say that nobody else uses what it does."""
    for index, entry in enumerate(table):
        if entry & _OFFSET:
            table[index] = entry | _COPIED


def _use(layout: _Layout, offset: int) -> None:
    """Note that a cluster is used, which must be in the file; plain is what nobody else uses."""
    number, rest = divmod(offset, layout.cluster)
    if number >= len(layout.used):
        raise _cut(layout)
    if rest or layout.used[number]:
        layout.why_not = "clusters that are used twice"
    layout.used[number] = 1


def _cut(layout: _Layout) -> Exception:
    return invalid_disk(
        f"{layout.name} is a damaged qcow2 file: it is cut short, and what it refers to is missing",
        "fetch or make it again",
    )


def _read(descriptor: int, offset: int, count: int, layout: _Layout) -> "array.array[int]":
    content = os.pread(descriptor, count * 8, offset)
    if len(content) != count * 8:
        raise _cut(layout)
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
    """Write what says where things are; the header comes last, and what is new lies behind."""
    first = len(layout.used)
    blocks = _blocks(first)
    table_clusters = -(-blocks * 8 // _CLUSTER)
    total = first + table_clusters + blocks
    counts = bytearray(blocks * _CLUSTER)
    counts[1 : 2 * total : 2] = layout.used + bytes([1]) * (table_clusters + blocks)
    places = [(first + table_clusters + number) * _CLUSTER for number in range(blocks)]
    os.ftruncate(descriptor, total * _CLUSTER)
    os.pwrite(descriptor, struct.pack(f">{blocks}Q", *places), first * _CLUSTER)
    os.pwrite(descriptor, counts, places[0])
    for offset in layout.unmarked:
        table = _table(descriptor, offset, layout)
        _mark(table)
        os.pwrite(descriptor, _bytes(table), offset)
    entries = array.array("Q", (offset | _COPIED if offset else 0 for offset in tables))
    room = -(-layout.entries * 8 // _CLUSTER) * _CLUSTER
    os.pwrite(descriptor, _bytes(entries).ljust(room, b"\0"), layout.header.l1)
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


def _blocks(clusters: int) -> int:
    """How many clusters count the references of a file and of themselves and their table."""
    blocks = 0
    while True:
        total = clusters + blocks + -(-blocks * 8 // _CLUSTER)
        needed = -(-total // _COUNTED)
        if needed == blocks:
            return blocks
        blocks = needed
