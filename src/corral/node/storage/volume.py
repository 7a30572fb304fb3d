"""One volume on disk: a directory with the disk, the layers below it, and a record of both.

    volume.json      what is what: a ``Record``, replaced as a whole
    disk-N.raw       the disk, on N layers; it is written by the machine that has the volume
    layer-N.qcow2    a layer on N others; hard-linked into the directory of each volume that has it,
                     and never written again

A disk has a layer's name no longer once it is one: who has found the disk under its old name
cannot open it to write.  Files of these names that the record does not name are what a crash left
over; of others in the directory nothing is known here.
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
    """What is written down of a volume.

    capacity_bytes: the size that it is promised; its disk is smaller only until it is grown.
    volume_mode: Filesystem or Block, as it was asked for; on disk they are alike.
    format: of the disk; layers: formats of the layers below, the lowest one first.
    shares_blocks: whether blocks of the disk may be another's too (a reflink).
    shareable: whether several machines may write it at the same time; it is always raw then.
    filled: whether it was given content, of a file or of another volume.
    """

    capacity_bytes: int
    volume_mode: str = "Filesystem"
    format: Format = "raw"
    layers: tuple[Format, ...] = ()
    shares_blocks: bool = False
    shareable: bool = False
    filled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A volume: its disk, and the layers below that, the nearest one first."""

    handle: str
    directory: Path
    record: Record

    @property
    def capacity_bytes(self) -> int:
        return self.record.capacity_bytes

    @property
    def volume_mode(self) -> str:
        return self.record.volume_mode

    @property
    def filled(self) -> bool:
        return self.record.filled

    @property
    def disk(self) -> Layer:
        return disk_of(self.directory, self.record)

    @property
    def layers(self) -> tuple[Layer, ...]:
        layers = [layer(self.directory, *each) for each in enumerate(self.record.layers)]
        return tuple(reversed(layers))


def is_handle(text: str) -> bool:
    """Whether a text can be the name of a volume: it becomes that of a directory."""
    return _HANDLE.fullmatch(text) is not None


def disk_of(directory: Path, record: Record) -> Layer:
    return Layer(directory / f"disk-{len(record.layers)}.{record.format}", record.format)


def layer(directory: Path, number: int, format_: Format) -> Layer:
    """The layer that stands on so many others."""
    return Layer(directory / f"layer-{number}.{format_}", format_)


def read(directory: Path) -> Record | None:
    """The record of a volume's directory; None where there is none that can be read."""
    return files.read_json(directory / RECORD, Record)


def write(directory: Path, record: Record) -> None:
    """From here on the volume is what the record says, whatever happens to the host."""
    files.replace(directory / RECORD, msgspec.json.encode(record), durable=True)


def lay_down(directory: Path, record: Record) -> None:
    """Write the first record of a volume that nobody sees yet, and make all of it durable."""
    (directory / RECORD).write_bytes(msgspec.json.encode(record))
    (directory / RECORD).chmod(0o600)
    _sync(directory, disk_of(directory, record).path, directory / RECORD)


def change(volume: Stored, record: Record) -> Stored:
    """Let a volume be what a record says, whose files are in place."""
    _sync(volume.directory, disk_of(volume.directory, record).path)
    write(volume.directory, record)
    tidy(volume.directory, record)
    return replace(volume, record=record)


def _sync(directory: Path, *paths: Path) -> None:
    """Make files and their names durable, all at once: the first takes the others with it."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files.sync_directory(directory)


def leftovers(directory: Path, record: Record) -> Iterator[Path]:
    """Files that were the volume's, or were to become so, and that its record does not name."""
    named = {disk_of(directory, record).path.name}
    named |= {layer(directory, *each).path.name for each in enumerate(record.layers)}
    for each in sorted(directory.iterdir()):
        if _CONTENT.fullmatch(each.name) and each.name not in named:
            yield each


def tidy(directory: Path, record: Record) -> None:
    """Remove what the record does not name."""
    for each in leftovers(directory, record):
        each.unlink(missing_ok=True)
