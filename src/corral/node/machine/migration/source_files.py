"""The files of a source that its disks are based on, and that it never writes to.

Container disks' layers, and disks with files for the guest.  A target has the same to the byte: the
image of a tag may have been replaced since the source's start, and a Secret may have changed.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from corral.aio import finished
from corral.api.encoding import decode_as
from corral.api.errors import LONGEST_MESSAGE, ApiError, shortened
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import GuestError
from corral.node.images.image import Image
from corral.node.images.limits import Limits
from corral.node.images.peer import beginning, gathered, write_sparse
from corral.node.machine.migration.channel import Links
from corral.node.volumes.source import FOLDER

_NAMES: Final = re.compile(r"([a-z0-9.-]+?)(\.image\.(qcow2|raw)|\.iso)")
_ISO: Final = ".iso"
_MAX_ISO_BYTES: Final = 64 << 20
"""Of a disk with files: those of a Secret or a ConfigMap have a MiB."""
_MAX_LIST_BYTES: Final = 1 << 20
_MAX_ERROR_BYTES: Final = 1 << 12
_PART: Final = ".part"


class SourceFile(msgspec.Struct, frozen=True):
    """A file of a source; digest: of an image in its store, by which a target may have it."""

    name: str
    size: int
    digest: str = ""


class SourceFiles(msgspec.Struct, frozen=True):
    """The files of a source, as its host lists them."""

    files: list[SourceFile]


def files_of(directory: Path) -> Iterator[Path]:
    """Iterate over these files in the directory of a machine."""
    for each in sorted((directory / FOLDER).glob("*")):
        if _NAMES.fullmatch(each.name):
            yield each


def listed(directory: Path, images: Callable[[], Sequence[Image]]) -> SourceFiles:
    """List the files of a machine, with the digests of images of this host; blocks.

    Raises OSError.
    """
    digests = {_identity(each.path): each.digest for each in images() if each.path.exists()}
    return SourceFiles(
        [
            SourceFile(each.name, each.stat().st_size, digests.get(_identity(each), ""))
            for each in files_of(directory)
        ]
    )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def link(source: Path, folder: Path) -> None:
    """Take over the files of a source on this host; blocks.  Raises OSError.

    Layers are linked.  A disk with files is copied: a guest may write to one that is no CD-ROM, and
    QEMU's lock keeps a second QEMU from the same file.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in files_of(source):
        target = folder / each.name
        target.unlink(missing_ok=True)
        if each.suffix == _ISO:
            shutil.copy(each, target)
        else:
            target.hardlink_to(each)


class FileCopies:
    """Copies the files of sources on other hosts.

    images: returns the images of this host; limits: of an image, also of one that is copied here.
    """

    def __init__(self, links: Links, images: Callable[[], Sequence[Image]], limits: Limits) -> None:
        self._links = links
        self._images = images
        self._limits = limits

    async def copy(
        self, node: str, query: Mapping[str, str], vmi: VirtualMachineInstance, folder: Path
    ) -> None:
        """Copy what this host does not have of a VMI.  Raises GuestError and OSError."""
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
        try:
            files = await self._list(node, query)
            self._check(node, files, {each.name for each in vmi.spec.volumes})
            images = await asyncio.to_thread(self._images) if files else ()
            present = {each.digest: each.path for each in images}
            for each in files:
                if not await asyncio.to_thread(_reuse, each, folder, present):
                    await self._fetch(node, query, each, folder)
        except (ApiError, msgspec.DecodeError) as error:
            why = shortened(describe(error), LONGEST_MESSAGE)
            raise GuestError(f"node {node} does not send its files: {why}") from error

    async def _list(self, node: str, query: Mapping[str, str]) -> list[SourceFile]:
        async with self._links.download(node, query) as (status, content):
            await _require(node, status, content)
            body = await beginning(content, _MAX_LIST_BYTES + 1)
        if len(body) > _MAX_LIST_BYTES:
            raise GuestError(f"node {node} lists too many files")
        return decode_as(body, SourceFiles).files

    def _check(self, node: str, files: Sequence[SourceFile], volumes: set[str]) -> None:
        """Raise GuestError unless these are files of volumes, at most one of each."""
        for each in files:
            name = _NAMES.fullmatch(each.name)
            if name is None:
                raise GuestError(f"node {node} sends a file of another kind: {each.name[:80]!r}")
            if name[1] not in volumes:
                what = f"{each.name[:80]!r}, of no volume of the VMI, or a second one"
                raise GuestError(f"node {node} sends {what}")
            volumes.remove(name[1])
            if each.size > self._most(each, self._limits.virtual_bytes):
                raise GuestError(f"node {node} sends a {each.name} of {each.size} bytes: too large")

    @staticmethod
    def _most(file: SourceFile, image: int) -> int:
        """Return a limit of a file, that of images being ``image``."""
        return _MAX_ISO_BYTES if file.name.endswith(_ISO) else image

    async def _fetch(
        self, node: str, query: Mapping[str, str], file: SourceFile, folder: Path
    ) -> None:
        part, received, occupied = folder / f"{file.name}{_PART}", 0, 0
        most = self._most(file, self._limits.disk_bytes)
        async with self._links.download(node, {**query, "file": file.name}) as (status, content):
            await _require(node, status, content)
            with await finished(asyncio.to_thread(_create, part), discard=_close) as output:
                async for chunk in gathered(content):
                    received += len(chunk)
                    if received > file.size:
                        break
                    occupied += await finished(asyncio.to_thread(write_sparse, output, chunk))
                    if occupied > most:
                        raise GuestError(f"{file.name} occupies more than {most} bytes")
                await finished(asyncio.to_thread(output.truncate, received))
        if received != file.size:
            raise GuestError(f"node {node} does not send {file.name} whole")
        await asyncio.to_thread(part.replace, folder / file.name)


def _create(path: Path) -> IO[bytes]:
    """Open a new file that its owner alone can read: it may have passwords.  Raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _close(file: IO[bytes]) -> None:
    file.close()


def _reuse(file: SourceFile, folder: Path, images: Mapping[str, Path]) -> bool:
    """Use a file that an earlier attempt has copied, or an image of this host."""
    path = folder / file.name
    if path.exists():
        return True
    image = images.get(file.digest) if file.digest else None
    if image is None:
        return False
    try:
        os.link(image, path)
    except OSError:  # just removed, or on another file system
        return False
    return True


async def _require(node: str, status: int, content: AsyncIterator[bytes]) -> None:
    """Raise GuestError for a refusal."""
    if status == 200:
        return
    refusal = (await beginning(content, _MAX_ERROR_BYTES)).decode(errors="replace")
    raise GuestError(f"node {node} does not send its files: {refusal}")
