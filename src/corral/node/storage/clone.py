"""Clones of volumes, without copying their content.

Where the file system has reflinks, the clone's disk is one.  Elsewhere the disk of the source
becomes a read-only layer: it is hard-linked into both volumes, and each gets an empty overlay of
its own.  The link count of a layer is its reference count.  A source whose overlay is still empty
is cloned without a change, so a thousand clones of one image share one layer.  A volume that
several machines may write at once stays a raw disk: QEMU cannot share a qcow2 one.

All callers hold the storage's lock, and no machine writes either volume.
"""

import errno
from pathlib import Path
from typing import Any

import msgspec

from corral.node.images import qcow
from corral.node.storage import disk as disks, volume as volumes
from corral.node.storage.disk_space import allocated_bytes, growth_of, max_size
from corral.node.storage.reflink import reflink
from corral.node.storage.volume import Record, StoredVolume

MAX_LAYERS = 8
"""Layers below a disk: each costs a descriptor, and a lookup for blocks that the disk lacks."""
_NO_LINKS = frozenset({errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})


def clone(origin: StoredVolume, copy: StoredVolume) -> StoredVolume | None:
    """Give ``copy`` the content of ``origin``; None if that needs a full copy."""
    if copy.record.layers:
        copy = _reset(copy)
    if _is_unwritten(origin):
        return _commit_like(copy if _is_unwritten(copy) else _reset(copy), Record(capacity_bytes=0))
    fits = origin.record.format == "raw" or not copy.record.shareable
    if (
        fits
        and not origin.record.layers
        and (cloned := _clone_by_reflink(origin, copy)) is not None
    ):
        return cloned
    if origin.record.shareable or copy.record.shareable:
        return None
    try:
        if not _is_blank(origin):
            if len(origin.record.layers) >= MAX_LAYERS:
                return None
            origin = _freeze(origin)
        return _clone_by_layers(origin, copy)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return None
        raise


def _commit_like(copy: StoredVolume, like: Record) -> StoredVolume:
    """Commit the format and layers of another volume, whose files are in place."""
    record = msgspec.structs.replace(
        copy.record,
        format=like.format,
        layers=like.layers,
        shares_blocks=like.shares_blocks,
        populated=True,
    )
    return volumes.commit(copy, record)


def growth(origin: StoredVolume) -> int:
    """Return the bytes that the source itself may additionally allocate after it was cloned."""
    most = max_size(origin.capacity_bytes, is_raw=False)
    return 0 if _is_blank(origin) else most - growth_of(origin)


def copy(origin: StoredVolume, file: Path) -> None:
    """Write the content of a volume to a file, as a raw disk.  Raises StorageError."""
    file.unlink(missing_ok=True)
    chain = f"json:{msgspec.json.encode(_chain(origin)).decode()}"
    disks.qemu_img("convert", "-O", "raw", chain, str(file), seconds=disks.COPY_SECONDS)


def _chain(origin: StoredVolume) -> dict[str, Any]:
    """Return a disk's backing chain for qemu-img, which then does not read it from headers."""
    node: dict[str, Any] | None = None
    for each in reversed((origin.disk, *origin.layers)):
        below = {"backing": node} if each.format == "qcow2" else {}
        file = {"driver": "file", "filename": str(each.path)}
        node = {"driver": each.format, "file": file, **below}
    assert node is not None
    return node


def _is_blank(volume: StoredVolume) -> bool:
    """Report whether nothing was written above a volume's layers."""
    return bool(volume.record.layers) and qcow.is_blank(volume.disk.path)


def is_replaceable(volume: StoredVolume) -> bool:
    """Report whether all content of a volume is in other volumes too."""
    own = {volumes.RECORD, volume.disk.path.name, *(each.path.name for each in volume.layers)}
    if any(each.name not in own for each in volume.directory.iterdir()):
        return False
    if volume.layers:
        shared = all(each.path.stat().st_nlink > 1 for each in volume.layers)
        return shared and _is_blank(volume)
    return _is_unwritten(volume)


def _is_unwritten(volume: StoredVolume) -> bool:
    """Report whether a disk was never written to."""
    if volume.record.format != "raw" or volume.layers:
        return False
    disks.sync(volume.disk.path)  # st_blocks leaves out delayed allocations
    return not allocated_bytes(volume.disk.path)


def _reset(volume: StoredVolume) -> StoredVolume:
    """Remove a volume's content and layers, so that their names are free."""
    record = msgspec.structs.replace(
        volume.record, format="raw", layers=(), shares_blocks=False, populated=False
    )
    partial = volume.directory / ".emptied.partial"
    partial.unlink(missing_ok=True)
    disks.make_raw(partial, record.capacity_bytes)
    partial.rename(volumes.disk_of(volume.directory, record).path)
    return volumes.commit(volume, record)


def _clone_by_reflink(origin: StoredVolume, copy: StoredVolume) -> StoredVolume | None:
    partial = copy.directory / ".cloned.partial"
    partial.unlink(missing_ok=True)
    if not reflink(origin.disk.path, partial):
        return None
    if not origin.record.shares_blocks:
        volumes.commit(origin, msgspec.structs.replace(origin.record, shares_blocks=True))
    like = msgspec.structs.replace(origin.record, shares_blocks=True)
    disks.grow(partial, like.format, copy.capacity_bytes)
    disks.sync(partial)
    partial.rename(volumes.disk_of(copy.directory, like).path)
    return _commit_like(copy, like)


def _freeze(origin: StoredVolume) -> StoredVolume:
    """Turn a volume's disk into one more layer, below an empty disk."""
    disks.sync(origin.disk.path)
    number = len(origin.record.layers)
    frozen = volumes.layer(origin.directory, number, origin.record.format)
    frozen.path.unlink(missing_ok=True)
    frozen.path.hardlink_to(origin.disk.path)
    record = msgspec.structs.replace(
        origin.record,
        format="qcow2",
        layers=(*origin.record.layers, origin.record.format),
        shares_blocks=False,
    )
    _create_overlay(origin.directory, record)
    changed = volumes.commit(origin, record)
    frozen.path.chmod(0o400)
    return changed


def _clone_by_layers(origin: StoredVolume, copy: StoredVolume) -> StoredVolume:
    """Link the source's layers into the clone, below an empty disk."""
    for number, format_ in enumerate(origin.record.layers):
        link = volumes.layer(copy.directory, number, format_).path
        link.unlink(missing_ok=True)
        link.hardlink_to(volumes.layer(origin.directory, number, format_).path)
    like = msgspec.structs.replace(origin.record, capacity_bytes=copy.capacity_bytes)
    _create_overlay(copy.directory, like)
    return _commit_like(copy, like)


def _create_overlay(directory: Path, record: Record) -> None:
    """Create an empty disk above a record's layers.  QEMU gets their paths as options."""
    below = volumes.layer(directory, len(record.layers) - 1, record.layers[-1])
    path = volumes.disk_of(directory, record).path
    qcow.create(
        path,
        record.capacity_bytes,
        backing=Path(below.path.name),
        backing_format=below.format,
    )
