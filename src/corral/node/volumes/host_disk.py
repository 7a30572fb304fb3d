"""hostDisk: a disk image in the node's own file system, below the directory set aside for them.

Who may make machines says where such a disk is, so the way there is walked step by step: it leads
through directories that nobody else can change, over no symbolic link and never upwards.  So what
was found here is what QEMU is given a moment later, too.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from corral.api import quantity
from corral.api.kinds.vmi.volumes import HostDisk, Volume
from corral.files import stranger
from corral.node.hypervisor import Drive
from corral.node.images import ImageError, qcow
from corral.node.volumes.source import VolumeContext, failed

CREATES = "DiskOrCreate"
_SECTOR = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """The raw image, made sparse where it is missing and may be made."""
    source = volume.host_disk
    assert source is not None
    root = context.host_disks
    if root is None:
        raise failed(
            volume,
            "this node gives no files of its own to machines",
            "start corral with --host-disks and the directory that may be used",
        )
    relative = _below(volume, source, root)
    with _directory(volume, root, relative.parent, create=source.type == CREATES) as directory:
        found = _look(volume, source, directory, relative.name)
        if found is None and source.type != CREATES:
            raise failed(volume, f"{source.path} does not exist")
        if source.type == CREATES:
            with suppress(FileNotFoundError):  # of a manager that was killed
                os.unlink(_partial(relative.name), dir_fd=directory)
        if found is None:
            _create(volume, source, directory, relative.name)
        path = Path(f"/proc/self/fd/{directory}") / relative.name
        try:
            image = qcow.inspect(path, source.path, context.images.limits)
        except ImageError as error:
            raise failed(volume, error.message, error.hint) from error
    if image.format != "raw":
        hint = f"convert it first: qemu-img convert -O raw {source.path} OUT"
        raise failed(volume, f"{source.path} is no raw disk but {image.format}", hint)
    return Drive(volume=volume.name, path=root / relative, format="raw", ephemeral=False)


def _below(volume: Volume, source: HostDisk, root: Path) -> PurePosixPath:
    """The way from the root to the disk."""
    path = PurePosixPath(source.path)
    if (
        not path.is_relative_to(root)
        or ".." in path.parts
        or path == PurePosixPath(root)
        or "\0" in source.path
    ):
        raise failed(
            volume,
            f"{source.path} is not below {root}",
            "only files below the directory that --host-disks names may be used",
        )
    return path.relative_to(root)


@contextmanager
def _directory(volume: Volume, root: Path, way: PurePosixPath, *, create: bool) -> Iterator[int]:
    """The directory at the end of a way, open; its steps are made where they are missing."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        at = root
        _trust(volume, at, descriptor)
        for step in way.parts:
            at /= step
            with suppress(FileExistsError):
                if create:
                    os.mkdir(step, 0o700, dir_fd=descriptor)
            try:
                below = os.open(step, _DIRECTORY, dir_fd=descriptor)
            except OSError as error:
                raise failed(volume, f"{at} is no directory: {error.strerror}") from error
            os.close(descriptor)
            descriptor = below
            _trust(volume, at, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _trust(volume: Volume, path: Path, descriptor: int) -> None:
    if why := stranger(os.fstat(descriptor)):
        raise failed(volume, f"{path} {why}: others could put any file in its place")


def _look(volume: Volume, source: HostDisk, directory: int, name: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise failed(volume, f"{source.path} is no regular file")
    return found


def _create(volume: Volume, source: HostDisk, directory: int, name: str) -> None:
    """Put an empty disk in place, whole or not at all."""
    size = quantity.bytes_of(source.capacity or "0") // _SECTOR * _SECTOR
    if not _SECTOR <= size <= qcow.LARGEST:
        raise failed(
            volume,
            f"hostDisk.capacity {source.capacity} is not the size of a disk",
            "set spec.volumes[].hostDisk.capacity",
        )
    space = os.fstatvfs(directory)
    available = space.f_bavail * space.f_frsize
    if size > available:
        raise failed(
            volume,
            f"Unable to create {source.path}, not enough space, demanded size {size} B is bigger "
            f"than available space {available} B",
        )
    partial = _partial(name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, 0o600, dir_fd=directory)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)
    os.link(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.unlink(partial, dir_fd=directory)


def _partial(name: str) -> str:
    """What a disk is called while it is made."""
    return f".{name}.partial"
