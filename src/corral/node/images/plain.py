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
from dataclasses import dataclass
from pathlib import Path

from corral.node.images import qcow

_CLUSTER_BITS = 16
_CLUSTER = 1 << _CLUSTER_BITS
_ENTRIES = _CLUSTER // 8
_COPIED = 1 << 63
_COMPRESSED = 1 << 62
_ZERO = 1
_OFFSET = 0x00FFFFFFFFFFFE00
_COUNTED = _CLUSTER // 2
"""References that a cluster of the count's own holds, 16 bits each."""


class NotPlain(Exception):
    """The file has something that has to be converted."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things are: the size for the guest, the first table, and its entries."""

    version: int
    size: int
    first_table: int
    entries: int


def make_plain(path: Path) -> None:
    """Make a qcow2 file plain; ``path`` must have passed ``qcow.inspect``.

    May be cut at any step and done again.  Raises NotPlain, and leaves the content as it was then.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        layout = _layout(descriptor)
        end = -(-os.fstat(descriptor).st_size // _CLUSTER) * _CLUSTER
        used = bytearray(end // _CLUSTER)
        tables = _first_table(descriptor, layout, used)
        seconds = {
            offset: _second_table(descriptor, offset, layout, used) for offset in tables if offset
        }
        _write(descriptor, layout, tables, seconds, used)
    finally:
        os.close(descriptor)


def _layout(descriptor: int) -> _Layout:
    head = os.pread(descriptor, 512, 0)
    header = qcow.read_header(head)
    covered = _CLUSTER * _ENTRIES
    entries = -(-header.size // covered)
    if (
        header.cluster_bits != _CLUSTER_BITS
        or header.snapshots
        or header.incompatible
        or header.l1_entries < entries
        or not entries
    ):
        raise NotPlain("its header")
    return _Layout(header.version, header.size, header.l1, entries)


def _first_table(descriptor: int, layout: _Layout, used: bytearray) -> list[int]:
    """Where the second tables are; what is used for them and the header is noted."""
    _use(used, 0)
    for offset in range(layout.first_table, layout.first_table + layout.entries * 8, _CLUSTER):
        _use(used, offset)
    found = _read(descriptor, layout.first_table, layout.entries)
    tables = []
    for entry in found:
        if entry & ~(_OFFSET | _COPIED):
            raise NotPlain("its first table")
        offset = entry & _OFFSET
        if offset:
            _use(used, offset)
        tables.append(offset)
    return tables


def _second_table(
    descriptor: int, offset: int, layout: _Layout, used: bytearray
) -> "array.array[int]":
    """A second table as it shall be."""
    table = _read(descriptor, offset, _ENTRIES)
    allowed = _OFFSET | _COPIED | (_ZERO if layout.version > 2 else 0)
    for index, entry in enumerate(table):
        if not entry:
            continue
        if entry & ~allowed:
            raise NotPlain("one of its tables")
        if cluster := entry & _OFFSET:
            _use(used, cluster)
            table[index] = entry | _COPIED
    return table


def _use(used: bytearray, offset: int) -> None:
    """Note that a cluster is used; it must be one of the file's, and nobody else's."""
    number, rest = divmod(offset, _CLUSTER)
    if rest or number >= len(used) or used[number]:
        raise NotPlain("clusters that are outside of it, or used twice")
    used[number] = 1


def _read(descriptor: int, offset: int, count: int) -> "array.array[int]":
    content = os.pread(descriptor, count * 8, offset)
    if len(content) != count * 8:
        raise NotPlain("a table that is cut short")
    numbers = array.array("Q", content)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _bytes(numbers: "array.array[int]") -> bytes:
    copied = array.array("Q", numbers)
    if sys.byteorder == "little":
        copied.byteswap()
    return copied.tobytes()


def _write(
    descriptor: int,
    layout: _Layout,
    tables: list[int],
    seconds: "dict[int, array.array[int]]",
    used: bytearray,
) -> None:
    """Write what says where things are; the header comes last, and what is new lies behind."""
    first = len(used)
    blocks = _blocks(first)
    table_clusters = -(-blocks * 8 // _CLUSTER)
    total = first + table_clusters + blocks
    counts = bytearray(blocks * _CLUSTER)
    counts[1 : 2 * total : 2] = used + bytes([1]) * (table_clusters + blocks)
    places = [(first + table_clusters + number) * _CLUSTER for number in range(blocks)]
    os.ftruncate(descriptor, total * _CLUSTER)
    os.pwrite(descriptor, struct.pack(f">{blocks}Q", *places), first * _CLUSTER)
    os.pwrite(descriptor, counts, places[0])
    for offset, table in seconds.items():
        os.pwrite(descriptor, _bytes(table), offset)
    entries = array.array("Q", (offset | _COPIED if offset else 0 for offset in tables))
    room = -(-layout.entries * 8 // _CLUSTER) * _CLUSTER
    os.pwrite(descriptor, _bytes(entries).ljust(room, b"\0"), layout.first_table)
    header = qcow.header(
        layout.size,
        qcow.Tables(
            l1=layout.first_table,
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
