"""Clones of volumes, without copying what they hold.

Where the file system has reflinks, the clone's disk is one.  Elsewhere the disk of the source
becomes a layer, which nobody writes any more: it is hard-linked into both volumes, and each gets an
empty overlay of its own.  The link count counts who needs a layer.  A source whose overlay is still
empty is cloned without being touched, so a thousand clones of one image stand on one layer.  A
volume that several machines may write at once stays a raw disk: QEMU cannot share a qcow2 one.

All callers hold the storage's lock, and nobody writes either volume.
"""

import errno
from pathlib import Path
from typing import Any

import msgspec

from corral.node.images import qcow
from corral.node.storage import disk as disks, volume as volumes
from corral.node.storage.disk_space import growth_of, largest, occupied
from corral.node.storage.reflink import reflink
from corral.node.storage.volume import Record, Stored

DEEPEST = 8
"""Layers below a disk: each costs a descriptor, and time wherever the disk itself is blank."""
_NO_LINKS = frozenset({errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})


def clone(origin: Stored, copy: Stored) -> Stored | None:
    """Give ``copy`` the content of ``origin``; None where that takes copying it."""
    if copy.record.layers:
        copy = _emptied(copy)
    if _has_nothing(origin):
        return _filled(copy if _has_nothing(copy) else _emptied(copy), Record(capacity_bytes=0))
    fits = origin.record.format == "raw" or not copy.record.shareable
    if not origin.record.layers and fits and (made := _reflinked(origin, copy)) is not None:
        return made
    if origin.record.shareable or copy.record.shareable:
        return None
    try:
        if not _is_blank(origin):
            if len(origin.record.layers) >= DEEPEST:
                return None
            origin = _frozen(origin)
        return _stacked(origin, copy)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return None
        raise


def _filled(copy: Stored, like: Record) -> Stored:
    """Let a volume have format and layers of another one, whose files are in place."""
    record = msgspec.structs.replace(
        copy.record,
        format=like.format,
        layers=like.layers,
        shares_blocks=like.shares_blocks,
        filled=True,
    )
    return volumes.change(copy, record)


def growth(origin: Stored) -> int:
    """How much more the source itself may come to occupy once it was cloned."""
    most = largest(origin.capacity_bytes, is_raw=False)
    return 0 if _is_blank(origin) else most - growth_of(origin)


def copy(origin: Stored, file: Path) -> None:
    """Write the content of a volume to a file, as a raw disk.  Raises StorageError."""
    file.unlink(missing_ok=True)
    chain = f"json:{msgspec.json.encode(_chain(origin)).decode()}"
    disks.qemu_img("convert", "-O", "raw", chain, str(file), seconds=disks.COPY_SECONDS)


def _chain(origin: Stored) -> dict[str, Any]:
    """A disk with all that is below it, for qemu-img: headers are not asked."""
    node: dict[str, Any] | None = None
    for each in reversed((origin.disk, *origin.layers)):
        below = {"backing": node} if each.format == "qcow2" else {}
        file = {"driver": "file", "filename": str(each.path)}
        node = {"driver": each.format, "file": file, **below}
    assert node is not None
    return node


def _is_blank(volume: Stored) -> bool:
    """Whether a volume is its layers, as nothing was written above them."""
    return bool(volume.record.layers) and qcow.is_blank(volume.disk.path)


def is_replaceable(volume: Stored) -> bool:
    """Whether nothing is in a volume that is not in others too."""
    own = {volumes.RECORD, volume.disk.path.name, *(each.path.name for each in volume.layers)}
    if any(each.name not in own for each in volume.directory.iterdir()):
        return False
    if volume.layers:
        shared = all(each.path.stat().st_nlink > 1 for each in volume.layers)
        return shared and _is_blank(volume)
    return _has_nothing(volume)


def _has_nothing(volume: Stored) -> bool:
    """Whether a disk was never written to."""
    if volume.record.format != "raw" or volume.layers:
        return False
    disks.sync(volume.disk.path)  # blocks are counted once they are on their way to the disk
    return not occupied(volume.disk.path)


def _emptied(volume: Stored) -> Stored:
    """A volume without content, and without layers whose names others shall have."""
    record = msgspec.structs.replace(
        volume.record, format="raw", layers=(), shares_blocks=False, filled=False
    )
    partial = volume.directory / ".emptied.partial"
    partial.unlink(missing_ok=True)
    disks.make_raw(partial, record.capacity_bytes)
    partial.rename(volumes.disk_of(volume.directory, record).path)
    return volumes.change(volume, record)


def _reflinked(origin: Stored, copy: Stored) -> Stored | None:
    partial = copy.directory / ".cloned.partial"
    partial.unlink(missing_ok=True)
    if not reflink(origin.disk.path, partial):
        return None
    if not origin.record.shares_blocks:
        volumes.change(origin, msgspec.structs.replace(origin.record, shares_blocks=True))
    like = msgspec.structs.replace(origin.record, shares_blocks=True)
    disks.grow(partial, like.format, copy.capacity_bytes)
    disks.sync(partial)
    partial.rename(volumes.disk_of(copy.directory, like).path)
    return _filled(copy, like)


def _frozen(origin: Stored) -> Stored:
    """The volume with its disk as one more layer, and an empty disk above."""
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
    _put_overlay(origin.directory, record)
    changed = volumes.change(origin, record)
    frozen.path.chmod(0o400)
    return changed


def _stacked(origin: Stored, copy: Stored) -> Stored:
    """The clone as an empty disk above the layers of its source."""
    for number, format_ in enumerate(origin.record.layers):
        link = volumes.layer(copy.directory, number, format_).path
        link.unlink(missing_ok=True)
        link.hardlink_to(volumes.layer(origin.directory, number, format_).path)
    like = msgspec.structs.replace(origin.record, capacity_bytes=copy.capacity_bytes)
    _put_overlay(copy.directory, like)
    return _filled(copy, like)


def _put_overlay(directory: Path, record: Record) -> None:
    """An empty disk above a record's layers.  Its name for them is for people: QEMU is told."""
    below = volumes.layer(directory, len(record.layers) - 1, record.layers[-1])
    path = volumes.disk_of(directory, record).path
    qcow.create(
        path,
        record.capacity_bytes,
        backing=Path(below.path.name),
        backing_format=below.format,
    )
