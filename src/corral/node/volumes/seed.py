"""ISO 9660 disks with files for the guest.  The only module that uses pycdlib."""

import asyncio
import io
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes.source import VolumeContext, failed

if TYPE_CHECKING:
    import pycdlib

MAX_FILES = 1000
"""On one disk: each costs a block of 2 KiB, and time to write the disk."""
MAX_LABEL_BYTES = 32
"""Of a volume label (ISO 9660)."""
_MAX_JOLIET_NAME = 64
_MAX_JOLIET_LABEL = 16

Files = Mapping[str, bytes]


class SeedError(Exception):
    """The files cannot be written to an ISO 9660 disk."""


async def prepare(
    volume: Volume,
    context: VolumeContext,
    label: str,
    read: Callable[[Volume, VolumeContext], Awaitable[Files]],
) -> Drive:
    """Return a disk with the files from ``read``, which is called once, at the machine's start."""
    path = context.file(f"{volume.name}.iso")
    if not path.exists():
        files = await read(volume, context)
        if len(files) > MAX_FILES:
            raise failed(volume, f"{len(files)} files are more than the {MAX_FILES} of one disk")
        if not (label.isascii() and label.isprintable() and 0 < len(label) <= MAX_LABEL_BYTES):
            raise failed(volume, f"its label is not 1 to {MAX_LABEL_BYTES} ASCII characters")
        try:
            await asyncio.to_thread(write, path, label, files)
        except SeedError as error:
            raise failed(volume, f"these files cannot be written to a disk: {error}") from error
    return Drive(volume=volume.name, path=path, format="raw")


def write(path: Path, label: str, files: Files) -> None:
    """Write files to a disk with Joliet and Rock Ridge names, atomically.

    label: of the file system; names: case-preserving paths with up to 250 characters a component,
    of which Joliet (Windows) shows the first 64.
    The disk is readable by its owner only, since it may contain passwords.  Raises SeedError.
    """
    import pycdlib  # noqa: PLC0415  a cold start that compiles it takes 4 % longer

    try:
        _write(pycdlib.PyCdlib(), path, label, files)
    except pycdlib.pycdlibexception.PyCdlibException as error:
        raise SeedError(str(error)) from error


def _write(image: "pycdlib.PyCdlib", path: Path, label: str, files: Files) -> None:
    joliet_label = label[:_MAX_JOLIET_LABEL]
    image.new(interchange_level=1, joliet=3, rock_ridge="1.09", vol_ident=joliet_label)
    image.pvd.volume_identifier = label.encode().ljust(MAX_LABEL_BYTES)
    directories = _Directories(image)
    for number, (name, content) in enumerate(files.items()):
        parent, joliet = directories.of(posixpath.dirname(name))
        image.add_fp(
            io.BytesIO(content),
            len(content),
            f"{parent}/FILE{number}.;1",  # unused: all guests read Rock Ridge or Joliet
            rr_name=posixpath.basename(name),
            joliet_path=f"{joliet}/{_joliet(posixpath.basename(name), number)}",
            file_mode=0o100444,
        )
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        partial.chmod(0o600)
        image.write_fp(file)
    image.close()
    partial.rename(path)


class _Directories:
    """The directories of a disk, created on demand."""

    def __init__(self, image: "pycdlib.PyCdlib") -> None:
        self._image = image
        self._created = {"": ("", "")}

    def of(self, name: str) -> tuple[str, str]:
        """Return a directory's ISO 9660 and Joliet paths; creates it and its parents."""
        if name not in self._created:
            parent, joliet = self.of(posixpath.dirname(name))
            number = len(self._created)
            plain = f"{parent}/DIR{number}"
            long = f"{joliet}/{_joliet(posixpath.basename(name), number)}"
            self._image.add_directory(plain, rr_name=posixpath.basename(name), joliet_path=long)
            self._created[name] = plain, long
        return self._created[name]


def _joliet(name: str, number: int) -> str:
    """Return a name cut to Joliet's limit, unique by its number."""
    if len(name) <= _MAX_JOLIET_NAME:
        return name
    end = f"~{number}"
    return name[: _MAX_JOLIET_NAME - len(end)] + end
