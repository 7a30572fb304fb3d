"""The volumes of one data directory.

    volumes/HANDLE/   a volume, see ``corral.node.storage.volume``
    filling/HANDLE/   the work directory of a volume: content that is not yet complete
    staging/          volumes that are being created or removed; may be deleted at any time
    id                the identifier of this storage

All methods are idempotent, also after a kill at any moment: a volume appears and vanishes by one
rename of its directory, and changes by one replacement of its record.  User data is never moved or
copied, only linked.  Several processes may use one storage.

The methods block; controllers call them in threads.
"""

import fcntl
import os
import secrets
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path

import msgspec

from corral import files
from corral.node.storage import clone as clones, disk as disks, disk_space, volume as volumes
from corral.node.storage.disk_locks import DiskLocks, FileLocks
from corral.node.storage.disk_space import Space, Usage, format_size
from corral.node.storage.error import InsufficientSpace, NoSuchVolume, StorageError
from corral.node.storage.record_cache import RecordCache
from corral.node.storage.volume import Format, Record, StoredVolume

BLOCK = 4096
"""Sizes are multiples of this, so that a disk of any logical block size fills its file."""


class Storage:
    """The volumes of a directory, by handle.

    space: returns the size and the free space of the file system.
    leases: the locks of the disks where other hosts have the directory, too: there a machine has a
    lease of each disk instead of an flock.
    """

    def __init__(
        self,
        directory: Path,
        *,
        space: Callable[[Path], Space] = disk_space.space,
        leases: DiskLocks | None = None,
    ) -> None:
        self._root = directory
        self._volumes = directory / "volumes"
        self._filling = directory / "filling"
        self._staging = directory / "staging"
        self._space = space
        self._is_leased = leases is not None
        self._locks = leases or FileLocks()
        self._cache = RecordCache(self.find, self.volumes)
        for each in (directory, self._volumes, self._filling, self._staging):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    @cached_property
    def id(self) -> str:
        """The identifier of this storage: the value of a node's label ``corral.dev/storage``."""
        with self._locked():
            return identifier_in(self._root)

    # ----------------------------------------------------------------- reading

    def find(self, handle: str) -> StoredVolume | None:
        """Return the volume; None if it is missing or its record cannot be read."""
        if not volumes.is_handle(handle):
            return None
        directory = self._volumes / handle
        record = volumes.read(directory)
        return (
            None
            if record is None
            else StoredVolume(
                handle=handle, directory=directory, record=record, leased=self._is_leased
            )
        )

    def get(self, handle: str) -> StoredVolume:
        """Return the volume.  Raises NoSuchVolume."""
        if (found := self.find(handle)) is None:
            raise NoSuchVolume(f"there is no volume {handle!r}")
        return found

    def is_blank(self, handle: str) -> bool:
        """Report whether a volume can be removed without loss: nothing was written to it."""
        found = self.find(handle)
        return found is not None and clones.is_replaceable(found)

    def volumes(self) -> Iterator[StoredVolume]:
        """Yield all volumes, sorted by handle."""
        for directory in sorted(self._volumes.iterdir()):
            if (found := self.find(directory.name)) is not None:
                yield found

    def usage(self) -> Usage:
        return disk_space.measure(self.volumes(), self._space(self._root))

    def unallocated(self) -> int:
        """Return the bytes left for new volumes, without overcommit; negative if none are."""
        return disk_space.unallocated(self.volumes(), self._space(self._root))

    # -------------------------------------------------------- creating, removing

    def provision(
        self,
        handle: str,
        capacity_bytes: int,
        volume_mode: str = "Filesystem",
        *,
        shareable: bool = False,
        overcommit_percent: int = 0,
    ) -> StoredVolume:
        """Create an empty volume, or return the present one of that handle unchanged.

        shareable: several machines may write it at the same time.
        overcommit_percent: by how much provisioned space may exceed free space.

        Raises StorageError and InsufficientSpace.
        """
        if not volumes.is_handle(handle):
            raise StorageError(f"{handle!r} is no name of a volume")
        capacity = -(-capacity_bytes // BLOCK) * BLOCK
        with self._locked(handle):
            if (present := self.find(handle)) is not None:
                return present
            self._check_space(handle, capacity, overcommit_percent)
            record = Record(capacity_bytes=capacity, volume_mode=volume_mode, shareable=shareable)
            staged = self._staged(handle)
            staged.mkdir(mode=0o700)
            disks.make_raw(volumes.disk_of(staged, record).path, capacity)
            volumes.write_new(staged, record)
            self._locks.create(handle)
            staged.rename(self._volumes / handle)
            files.sync_directory(self._volumes)
        return self.get(handle)

    def remove(self, handle: str) -> None:
        """Remove a volume and its work directory, if present.

        Layers that other volumes use stay linked there.  Raises InUse.
        """
        if not volumes.is_handle(handle):
            return
        with self._locked(handle):
            staged = self._staged(handle)
            if (present := self.find(handle)) is not None:
                locked = self.exclusive(present)
                with locked if present.disk.path.exists() else nullcontext():
                    present.directory.rename(staged)
            elif (self._volumes / handle).exists():
                (self._volumes / handle).rename(staged)
            files.sync_directory(self._volumes)
        self._locks.remove(handle)
        _erase(staged)
        _erase(self._filling / handle)

    def sweep(self) -> None:
        """Remove leftovers of killed processes; called before any other method."""
        with self._locked():
            for left in self._staging.iterdir():
                _erase(left)
            for work in self._filling.iterdir():
                if (volume := self.find(work.name)) is None or volume.populated:
                    _erase(work)
            for each in self.volumes():
                volumes.remove_leftovers(each.directory, each.record)

    # ----------------------------------------------------------------- content

    def work_directory(self, handle: str) -> Path:
        """Return a directory for preparing a volume's content.

        It persists, across restarts too, until the volume is populated or removed.
        Raises NoSuchVolume.
        """
        self.get(handle)
        work = self._filling / handle
        work.mkdir(mode=0o700, exist_ok=True)
        return work

    def populate(
        self,
        handle: str,
        file: Path,
        format_: Format,
        *,
        shares_blocks: bool = False,
    ) -> StoredVolume:
        """Replace a volume's content by a finished file of its work directory, grown to capacity.

        A qcow2 file must have been written by corral, see ``corral.node.images.convert``.
        shares_blocks: the file may be a reflink, see ``corral.node.storage.reflink``.
        The previous content and the work directory are removed; after a kill, the volume's
        ``populated`` shows whether this happened.  Raises StorageError and InUse.
        """
        present = self.get(handle)
        size = disks.size(file, format_)
        if size > present.capacity_bytes:
            raise StorageError(
                f"the content of volume {handle} has {size} bytes, and the volume "
                f"{present.capacity_bytes}",
                "ask for more storage",
            )
        if present.record.shareable and format_ != "raw":
            file, format_ = disks.to_raw(file), "raw"
            shares_blocks = False
        disks.grow(file, format_, present.capacity_bytes)
        file.chmod(0o600)
        disks.sync(file)
        with self._locked(handle):
            present = self.get(handle)
            with self.exclusive(present):
                disks.grow(file, format_, present.capacity_bytes)  # may have been raised since
                record = msgspec.structs.replace(
                    present.record,
                    format=format_,
                    layers=(),
                    shares_blocks=shares_blocks,
                    populated=True,
                )
                # A link, not a rename: a kill before the record is written must not lose the file.
                link = present.directory / ".adopted.partial"
                link.unlink(missing_ok=True)
                link.hardlink_to(file)
                link.rename(volumes.disk_of(present.directory, record).path)
                populated = volumes.commit(present, record)
        _erase(self._filling / handle)
        return populated

    def clone(self, source: str, target: str, *, overcommit_percent: int = 0) -> StoredVolume:
        """Replace a volume's content by that of another one.

        No content is copied, unless the file system has neither reflinks nor hard links, or the
        source has too many layers.  The target's previous content is removed.
        Raises NoSuchVolume, StorageError if the target is smaller, InsufficientSpace and InUse.
        """
        origin, copy = self.get(source), self.get(target)
        if copy.capacity_bytes < origin.capacity_bytes:
            raise StorageError(
                f"volume {target} has {copy.capacity_bytes} bytes, and its source {source} has "
                f"{origin.capacity_bytes}",
                "request as much storage as the source has",
            )
        with self._locked(source, target):
            origin, copy = self.get(source), self.get(target)
            with self.exclusive(origin), self.exclusive(copy):
                self._check_space(target, clones.growth(origin), overcommit_percent)
                if (cloned := clones.clone(origin, copy)) is not None:
                    return cloned
        file = self.work_directory(target) / "clone"
        self.copy(source, file)
        return self.populate(target, file, "raw")

    def copy(self, handle: str, file: Path) -> None:
        """Write the content of a volume to a file, as a raw disk.

        Raises NoSuchVolume, InUse, StorageError and OSError.
        """
        origin = self.get(handle)
        with self.exclusive(origin):
            clones.copy(origin, file)

    @contextmanager
    def exported(self, handle: str) -> Iterator[Path]:
        """Yield a raw disk with the content of a volume, which nobody writes meanwhile.

        Raises NoSuchVolume, InUse, StorageError and OSError.
        """
        origin = self.get(handle)
        with self.exclusive(origin):
            if origin.record.format == "raw" and not origin.layers:
                yield origin.disk.path
                return
            staged = self._staging / f"{handle}.{secrets.token_hex(4)}.export"
            staged.mkdir(mode=0o700)
            try:
                clones.copy(origin, staged / "disk")
                yield staged / "disk"
            finally:
                _erase(staged)

    # -------------------------------------------------------------------- size

    def reserve(
        self, handle: str, capacity_bytes: int, *, overcommit_percent: int = 0
    ) -> StoredVolume:
        """Raise a volume's capacity in its record only; the caller then grows its disk.

        Raises NoSuchVolume and InsufficientSpace.
        """
        capacity = -(-capacity_bytes // BLOCK) * BLOCK
        with self._locked(handle):
            present = self.get(handle)
            if capacity > present.capacity_bytes:
                self._check_space(handle, capacity - present.capacity_bytes, overcommit_percent)
                record = msgspec.structs.replace(present.record, capacity_bytes=capacity)
                volumes.write(present.directory, record)
        return self.get(handle)

    def resize(
        self, handle: str, capacity_bytes: int, *, overcommit_percent: int = 0
    ) -> StoredVolume:
        """Grow a volume that no machine writes.

        Raises NoSuchVolume, InsufficientSpace, and InUse: the capacity is reserved then, and the
        machine's QEMU has to resize the disk.
        """
        present = self.reserve(handle, capacity_bytes, overcommit_percent=overcommit_percent)
        with self.exclusive(present):
            disks.grow(present.disk.path, present.record.format, present.capacity_bytes)
            disks.sync(present.disk.path)
        return present

    # ------------------------------------------------------------------- parts

    def exclusive(self, volume: StoredVolume) -> AbstractContextManager[None]:
        """Hold a volume's disk, so that no machine opens it for writing.  Raises InUse."""
        return self._locks.exclusive(volume)

    def _check_space(self, handle: str, more: int, overcommit_percent: int) -> None:
        """Raises InsufficientSpace if that many more bytes cannot be provisioned."""
        if more <= 0:
            return
        space = self._space(self._root)
        if more <= disk_space.allocatable(space, overcommit_percent) - self._cache.max_bytes():
            return  # fits even if the volumes were blank: no need to stat their files
        left = disk_space.unallocated(self._cache.volumes(), space, overcommit_percent)
        if more > left:
            raise InsufficientSpace(
                f"volume {handle} needs {format_size(more)}, and {format_size(max(0, left))} are "
                "left for new volumes",
                "remove volumes, or free space on the host",
            )

    def _staged(self, handle: str) -> Path:
        """Return a path for a volume that is created or removed.  Needs the lock."""
        staged = self._staging / handle
        _erase(staged)
        return staged

    @contextmanager
    def _locked(self, *handles: str) -> Iterator[None]:
        """Hold the lock of this storage, against other processes too; for short changes only.

        handles: the volumes whose records may change.
        """
        descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._cache.begin_change(descriptor)
            try:
                yield
            finally:
                self._cache.refresh(*handles)
        finally:
            os.close(descriptor)


def identifier_in(directory: Path) -> str:
    """Return the identifier of the storage in a directory, which gets one if it has none."""
    path = directory / "id"
    if not (identifier := path.read_text() if path.exists() else ""):
        identifier = uuid.uuid4().hex[:16]
        files.replace(path, identifier.encode(), durable=True)
    return identifier


def _erase(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
