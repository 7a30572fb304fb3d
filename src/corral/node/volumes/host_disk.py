"""hostDisk: a disk image in the node's file system, below the directory of ``--host-disks``.

The path comes from users of the API, so it is opened directory by directory (openat, O_NOFOLLOW):
only root and the manager's user may write the directories, and no symbolic link or ``..`` is
followed.  So the file that is checked here is the file that QEMU opens a moment later.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from corral.api import quantity
from corral.api.kinds.vmi.volumes import HostDisk, Volume
from corral.files import untrusted_stat
from corral.node.hypervisor import Drive
from corral.node.images import ImageError, qcow
from corral.node.volumes.source import VolumeContext, failed

DISK_OR_CREATE = "DiskOrCreate"
_SECTOR = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    """Return the raw image; create it sparse if missing and of type DiskOrCreate."""
    source = volume.host_disk
    assert source is not None
    root = context.host_disks
    if root is None:
        raise failed(
            volume,
            "hostDisk is disabled on this node",
            "start corral with --host-disks and the directory that may be used",
        )
    relative = _below(volume, source, root)
    creates = source.type == DISK_OR_CREATE
    with _directory(
        volume, root, relative.parent, create=source.type == DISK_OR_CREATE
    ) as directory:
        found = _stat(volume, source, directory, relative.name)
        if found is None and not creates:
            raise failed(volume, f"{source.path} does not exist")
        if creates:
            with suppress(FileNotFoundError):  # left by a manager that was killed
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
    """Return the path relative to the root.  Raises VolumeError for one that leads elsewhere."""
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
def _directory(volume: Volume, root: Path, path: PurePosixPath, *, create: bool) -> Iterator[int]:
    """Open the directory of a relative path, step by step; create missing directories if asked."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        at = root
        _check_owner(volume, at, descriptor)
        for step in path.parts:
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
            _check_owner(volume, at, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_owner(volume: Volume, path: Path, descriptor: int) -> None:
    if why := untrusted_stat(os.fstat(descriptor)):
        raise failed(volume, f"{path} {why}: others could put any file in its place")


def _stat(volume: Volume, source: HostDisk, directory: int, name: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise failed(volume, f"{source.path} is no regular file")
    return found


def _create(volume: Volume, source: HostDisk, directory: int, name: str) -> None:
    """Create an empty disk atomically."""
    size = quantity.bytes_of(source.capacity or "0") // _SECTOR * _SECTOR
    if not _SECTOR <= size <= qcow.MAX_BYTES:
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
    """Return the temporary name of a disk that is being created."""
    return f".{name}.partial"
