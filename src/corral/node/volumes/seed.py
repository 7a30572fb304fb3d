"""Small ISO 9660 disks that hold files, which a guest reads.  The door to pycdlib."""

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

MOST_FILES = 1000
"""On one disk: each takes a block of 2 KiB, and its part of the time in which the disk is made."""
LONGEST_LABEL = 32
"""Bytes of a file system's label (ISO 9660)."""
_LONGEST_JOLIET_NAME = 64
_LONGEST_JOLIET_LABEL = 16

Files = Mapping[str, bytes]


class UnfitError(Exception):
    """Files that no disk can hold: the message says why."""


async def prepare(
    volume: Volume,
    context: VolumeContext,
    label: str,
    read: Callable[[Volume, VolumeContext], Awaitable[Files]],
) -> Drive:
    """A disk with the files that ``read`` answers, which is asked once, at the machine's start."""
    path = context.file(f"{volume.name}.iso")
    if not path.exists():
        files = await read(volume, context)
        if len(files) > MOST_FILES:
            raise failed(volume, f"{len(files)} files are more than the {MOST_FILES} of one disk")
        if not (label.isascii() and label.isprintable() and 0 < len(label) <= LONGEST_LABEL):
            raise failed(volume, f"its label is not 1 to {LONGEST_LABEL} ASCII characters")
        try:
            await asyncio.to_thread(write, path, label, files)
        except UnfitError as error:
            raise failed(volume, f"no disk can hold these files: {error}") from error
    return Drive(volume=volume.name, path=path, format="raw")


def write(path: Path, label: str, files: Files) -> None:
    """Write the files to a disk with Joliet and Rock Ridge names; it appears at once and complete.

    label: of the file system; names: of any case, with slashes where files are in directories, and
    of up to 250 characters, of which Joliet (Windows) shows the first 64.
    Readable by its owner only, as it may hold passwords.  Raises UnfitError.
    """
    import pycdlib  # noqa: PLC0415  a start that compiles all it imports takes 4 % longer by it

    try:
        _write(pycdlib.PyCdlib(), path, label, files)
    except pycdlib.pycdlibexception.PyCdlibException as error:
        raise UnfitError(str(error)) from error


def _write(image: "pycdlib.PyCdlib", path: Path, label: str, files: Files) -> None:
    joliet_label = label[:_LONGEST_JOLIET_LABEL]
    image.new(interchange_level=1, joliet=3, rock_ridge="1.09", vol_ident=joliet_label)
    image.pvd.volume_identifier = label.encode().ljust(LONGEST_LABEL)
    directories = _Directories(image)
    for number, (name, content) in enumerate(files.items()):
        parent, joliet = directories.of(posixpath.dirname(name))
        image.add_fp(
            io.BytesIO(content),
            len(content),
            f"{parent}/FILE{number}.;1",  # seen by nobody: every reader knows one of the other two
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
    """The directories of a disk, each made when its first file comes."""

    def __init__(self, image: "pycdlib.PyCdlib") -> None:
        self._image = image
        self._known = {"": ("", "")}

    def of(self, name: str) -> tuple[str, str]:
        """A directory's path in ISO 9660's own names, and in Joliet's."""
        if name not in self._known:
            parent, joliet = self.of(posixpath.dirname(name))
            number = len(self._known)
            plain = f"{parent}/DIR{number}"
            long = f"{joliet}/{_joliet(posixpath.basename(name), number)}"
            self._image.add_directory(plain, rr_name=posixpath.basename(name), joliet_path=long)
            self._known[name] = plain, long
        return self._known[name]


def _joliet(name: str, number: int) -> str:
    """A name as long as Joliet allows, and still no other file's."""
    if len(name) <= _LONGEST_JOLIET_NAME:
        return name
    end = f"~{number}"
    return name[: _LONGEST_JOLIET_NAME - len(end)] + end
