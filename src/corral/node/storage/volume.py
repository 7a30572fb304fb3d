"""A volume on disk: a directory with the disk, the layers below it, and a record of both.

    volume.json      a ``Record``: names the current files; always replaced atomically
    disk-N.raw       the disk, above N layers; written by the machine that uses the volume
    layer-N.qcow2    a layer above N others; hard-linked into the directory of each volume that
                     uses it, and never written again

A disk that becomes a layer loses its name ``disk-N``, so that a process that resolved the old path
cannot open it for writing.  Files of these names that the record does not mention are leftovers of
a crash; all other files in the directory belong to other modules.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from corral import files
from corral.node.hypervisor import Layer

Format = Literal["raw", "qcow2"]
RECORD = "volume.json"

_HANDLE = re.compile(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?")
_CONTENT = re.compile(
    r"(disk|layer)-[0-9]+\.(raw|qcow2)|\.volume\.json\.[0-9]+"
    r"|\.(disk-[0-9]+\.qcow2|adopted|cloned|emptied)\.partial"
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a volume.

    capacity_bytes: provisioned size; the disk is smaller only until it is resized.
    volume_mode: Filesystem or Block, as requested; on disk they are alike.
    format: of the disk; layers: formats of the layers below, the lowest one first.
    shares_blocks: whether the disk may share blocks with another file (a reflink).
    shareable: whether several machines may write it at the same time; always raw then.
    populated: whether it was given content, from a file or from another volume.
    """

    capacity_bytes: int
    volume_mode: str = "Filesystem"
    format: Format = "raw"
    layers: tuple[Format, ...] = ()
    shares_blocks: bool = False
    shareable: bool = False
    populated: bool = msgspec.field(name="filled", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVolume:
    """A volume: its disk, and the layers below the disk, the nearest one first.

    leased: whether a machine needs the lease of its disk, as other hosts have it, too.
    """

    handle: str
    directory: Path
    record: Record
    leased: bool = False

    @property
    def capacity_bytes(self) -> int:
        return self.record.capacity_bytes

    @property
    def volume_mode(self) -> str:
        return self.record.volume_mode

    @property
    def populated(self) -> bool:
        return self.record.populated

    @property
    def disk(self) -> Layer:
        return disk_of(self.directory, self.record)

    @property
    def layers(self) -> tuple[Layer, ...]:
        layers = [layer(self.directory, *each) for each in enumerate(self.record.layers)]
        return tuple(reversed(layers))


def is_handle(text: str) -> bool:
    """Report whether a text can name a volume, and thus a directory."""
    return _HANDLE.fullmatch(text) is not None


def disk_of(directory: Path, record: Record) -> Layer:
    return Layer(directory / f"disk-{len(record.layers)}.{record.format}", record.format)


def layer(directory: Path, number: int, format_: Format) -> Layer:
    """Return the layer above that many others."""
    return Layer(directory / f"layer-{number}.{format_}", format_)


def read(directory: Path) -> Record | None:
    """Return the record in a volume's directory; None if it is missing or cannot be read."""
    return files.read_json(directory / RECORD, Record)


def write(directory: Path, record: Record) -> None:
    """Replace a volume's record, durably."""
    files.replace(directory / RECORD, msgspec.json.encode(record), durable=True)


def write_new(directory: Path, record: Record) -> None:
    """Write the first record of a volume that is not yet visible, and make all of it durable."""
    (directory / RECORD).write_bytes(msgspec.json.encode(record))
    (directory / RECORD).chmod(0o600)
    _sync(directory, disk_of(directory, record).path, directory / RECORD)


def commit(volume: StoredVolume, record: Record) -> StoredVolume:
    """Replace a volume's record by one whose files are in place, and remove the old files."""
    _sync(volume.directory, disk_of(volume.directory, record).path)
    write(volume.directory, record)
    remove_leftovers(volume.directory, record)
    return replace(volume, record=record)


def _sync(directory: Path, *paths: Path) -> None:
    """Make files and their names durable.  The first fsync flushes most of the others too."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files.sync_directory(directory)


def leftovers(directory: Path, record: Record) -> Iterator[Path]:
    """Yield old or unfinished files of a volume: those that its record does not mention."""
    named = {disk_of(directory, record).path.name}
    named |= {layer(directory, *each).path.name for each in enumerate(record.layers)}
    for each in sorted(directory.iterdir()):
        if _CONTENT.fullmatch(each.name) and each.name not in named:
            yield each


def remove_leftovers(directory: Path, record: Record) -> None:
    """Remove the files that the record does not mention."""
    for each in leftovers(directory, record):
        each.unlink(missing_ok=True)
