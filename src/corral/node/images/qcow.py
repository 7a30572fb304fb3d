"""The qcow2 format: checks headers of untrusted disks, and writes empty disks.

A qcow2 header may refer to other files, which QEMU would open with its own rights, so QEMU and
qemu-img get no file that ``inspect`` has not passed.  The layout is QEMU's docs/interop/qcow2.rst.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corral.node.images.error import invalid_disk
from corral.node.images.limits import Limits

MAGIC = b"QFI\xfb"
MAX_BYTES = 1 << 50  # QEMU's own limit for our cluster size is twice that
_SECTOR = 512
_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_HEADER_3 = struct.Struct(">QQQII")
_HEADER_LENGTH = {2: _HEADER.size, 3: _HEADER.size + _HEADER_3.size}

# incompatible features (header version 3)
_CORRUPT, _EXTERNAL_DATA = 1 << 1, 1 << 2
_SUPPORTED_FEATURES = 0b11111

_BACKING_FORMAT = 0xE2792ACA
_ENCRYPTION = 0x0537BE77
_DATA_FILE = 0x44415441

_FOREIGN = {
    b"KDMV": "VMDK",
    b"COWD": "VMDK",
    b"# Disk DescriptorFile": "VMDK",
    b"vhdxfile": "VHDX",
    b"conectix": "VHD",  # codespell:ignore conectix
    b"QED\0": "QED",
    b"LUKS\xba\xbe": "LUKS",
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"\x7fELF": "ELF",
}


@dataclass(frozen=True, slots=True)
class Disk:
    """Format (``raw`` or ``qcow2``) and virtual size in bytes of a disk file."""

    format: str
    virtual_size: int


def inspect(path: Path, name: str, limits: Limits) -> Disk:
    """Detect a disk's format by its content.  Raises ImageError ``InvalidDisk`` with ``name``.

    As in KubeVirt, all that is not qcow2 is raw; but other well-known formats are rejected, which a
    guest could not boot from as raw, and so is every qcow2 file that refers to another file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_SECTOR)
        if head.startswith(MAGIC):
            return Disk("qcow2", _check_qcow2(file, head, size, name, limits))
    for magic, format_name in _FOREIGN.items():
        if head.startswith(magic):
            raise invalid_disk(
                f"{name} is neither a raw nor a qcow2 disk but {format_name}",
                "convert it first, for example with: qemu-img convert -O qcow2 IN OUT",
            )
    if size < _SECTOR or size % _SECTOR:
        raise invalid_disk(
            f"{name} is not a disk: its {size} bytes are not whole sectors of {_SECTOR}",
            "a disk is a raw or qcow2 file",
        )
    _check_virtual_size(size, name, limits)
    return Disk("raw", size)


def virtual_size(path: Path) -> int:
    """Return the size of a qcow2 disk that was made here, in bytes.  Raises OSError."""
    with path.open("rb") as file:
        return int(_HEADER.unpack(file.read(_HEADER.size))[5])


def _check_virtual_size(size: int, name: str, limits: Limits) -> None:
    if not _SECTOR <= size <= limits.virtual_bytes:
        raise invalid_disk(
            f"{name} claims a size of {size} bytes; {_SECTOR} to {limits.virtual_bytes} are allowed"
        )


def _check_qcow2(file: BinaryIO, head: bytes, size: int, name: str, limits: Limits) -> int:
    if len(head) < _HEADER.size:
        raise invalid_disk(f"{name} is a qcow2 file that ends in its header")
    (_, version, backing, _, cluster_bits, virtual_size, crypt, l1_entries, l1, refcounts,
     refcount_clusters, snapshots, snapshot_table) = _HEADER.unpack_from(head)  # fmt: skip
    if version not in _HEADER_LENGTH:
        raise invalid_disk(f"{name} has qcow version {version}; 2 and 3 are understood")
    if backing:
        raise invalid_disk(
            f"{name} has a backing file, which is not followed",
            "flatten it with: qemu-img convert -O qcow2 IN OUT",
        )
    if crypt:
        raise invalid_disk(f"{name} is encrypted, which is not supported")
    _check_virtual_size(virtual_size, name, limits)
    if not 9 <= cluster_bits <= 21:
        raise _damaged(name, f"cluster bits {cluster_bits}")
    header_length = _check_features(head, version, name)
    cluster = 1 << cluster_bits
    _check_extensions(file, header_length, cluster, name)
    covered = cluster * (
        cluster // 16
    )  # by an L1 entry, when L2 entries are the extended, long ones
    if l1_entries > -(-virtual_size // covered) + cluster:
        raise _damaged(name, f"{l1_entries} L1 entries for {virtual_size} bytes")
    for table, offset, length in (
        ("L1 table", l1, l1_entries * 8),
        ("refcount table", refcounts, refcount_clusters * cluster),
        ("snapshot table", snapshot_table, snapshots * 40),
    ):
        if offset % cluster or offset + length > size:
            raise _damaged(name, f"{table} outside of the file")
    return int(virtual_size)


def _check_features(head: bytes, version: int, name: str) -> int:
    """Check version and feature bits; return the header's length."""
    if version == 2:
        return _HEADER.size
    if len(head) < _HEADER_LENGTH[3]:
        raise invalid_disk(f"{name} is a qcow2 file that ends in its header")
    incompatible, _, _, refcount_order, length = _HEADER_3.unpack_from(head, _HEADER.size)
    if incompatible & _EXTERNAL_DATA:
        raise invalid_disk(f"{name} has an external data file, which is not followed")
    if incompatible & _CORRUPT:
        raise _damaged(name, "it is marked corrupt", "try: qemu-img check -r all FILE")
    if incompatible & ~_SUPPORTED_FEATURES:
        raise invalid_disk(f"{name} needs qcow2 features that are unknown here")
    if refcount_order > 6 or not _HEADER_LENGTH[3] <= length <= _SECTOR:
        raise _damaged(name, f"refcount order {refcount_order}, header length {length}")
    return int(length)


def _check_extensions(file: BinaryIO, start: int, end: int, name: str) -> None:
    """Check the header extensions, up to the end of the first cluster."""
    position = start
    while position + 8 <= end:
        file.seek(position)
        record = file.read(8)
        if len(record) < 8:
            return
        kind, length = struct.unpack(">II", record)
        if kind == 0:
            return
        if kind == _DATA_FILE:
            raise invalid_disk(f"{name} names an external data file, which is not followed")
        if kind == _ENCRYPTION:
            raise invalid_disk(f"{name} is encrypted, which is not supported")
        position += 8 + length + -length % 8


def _damaged(name: str, defect: str, hint: str = "fetch or make it again") -> Exception:
    return invalid_disk(f"{name} is a damaged qcow2 file: {defect}", hint)


def create(path: Path, size: int, *, backing: Path | None = None, backing_format: str = "") -> None:
    """Write an empty qcow2 disk of ``size`` bytes, or an overlay above ``backing``, atomically.

    backing: may be relative to the directory of ``path``.  Not by ``qemu-img create``, which takes
    a hundred times as long in the start of every machine.
    """
    cluster = 1 << 16
    l1_entries = -(-size // (cluster * (cluster // 8)))
    l1_clusters = -(-l1_entries * 8 // cluster)
    used_clusters = 3 + l1_clusters  # header, refcount table, refcount block, L1 table
    name = os.fsencode(backing) if backing else b""
    if not 0 < size <= MAX_BYTES or len(name) > 1023:
        raise ValueError(f"{path}: size or backing file name out of qcow2's bounds")
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        partial.chmod(0o600)
        tables = Tables(l1=3 * cluster, l1_entries=l1_entries, refcounts=cluster)
        file.write(header(size, tables, backing=name, backing_format=backing_format))
        file.seek(cluster)
        file.write(struct.pack(">Q", 2 * cluster))
        file.seek(2 * cluster)
        file.write(struct.pack(">H", 1) * used_clusters)
        file.truncate(used_clusters * cluster)
    partial.rename(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Offsets in bytes and sizes of a file's tables.

    l1: the L1 table, with ``l1_entries``.
    refcounts: the refcount table, with ``refcount_clusters``.
    """

    l1: int
    l1_entries: int
    refcounts: int
    refcount_clusters: int = 1


def header(size: int, tables: Tables, *, backing: bytes = b"", backing_format: str = "") -> bytes:
    """Return a version 3 header with clusters of 64 KiB and no optional features."""
    extensions = _extension(_BACKING_FORMAT, backing_format.encode()) if backing else b""
    extensions += _extension(0, b"")
    name_offset = _HEADER_LENGTH[3] + len(extensions) if backing else 0
    packed = _HEADER.pack(
        MAGIC, 3, name_offset, len(backing), 16, size, 0,
        tables.l1_entries, tables.l1, tables.refcounts, tables.refcount_clusters, 0, 0,
    )  # fmt: skip
    return packed + _HEADER_3.pack(0, 0, 0, 4, _HEADER_LENGTH[3]) + extensions + backing


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Fields of the header of a file that has passed ``inspect``."""

    version: int
    cluster_bits: int
    size: int
    l1: int
    l1_entries: int
    snapshots: int
    incompatible: int


def read_header(head: bytes) -> Header:
    """Parse the header in the first 512 bytes of a file."""
    (_, version, _, _, cluster_bits, size, _, l1_entries, l1, _, _, snapshots, _) = (
        _HEADER.unpack_from(head)
    )
    incompatible = _HEADER_3.unpack_from(head, _HEADER.size)[0] if version > 2 else 0
    return Header(
        version=version,
        cluster_bits=cluster_bits,
        size=size,
        l1=l1,
        l1_entries=l1_entries,
        snapshots=snapshots,
        incompatible=incompatible,
    )


def is_blank(path: Path) -> bool:
    """Report whether a disk from ``create`` was never written to: all L1 entries are zero."""
    with path.open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        l1_entries, l1 = header[7:9]
        file.seek(l1)
        return not any(file.read(l1_entries * 8))


def _extension(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", kind, len(body)) + body + bytes(-len(body) % 8)
