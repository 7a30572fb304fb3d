"""The volumes of one data directory.

    volumes/HANDLE/   a volume, see ``corral.node.storage.volume``
    filling/HANDLE/   where the content of a volume is made, before it becomes the volume's
    staging/          volumes on their way in and out; nothing in it is anybody's
    id                names this storage among others

Every verb can be taken again after a kill at any moment, and answers the same: a volume appears and
vanishes by one rename of its directory, and changes by one replacement of its record.  What users
have written is never moved or copied, only linked.  Several processes may use one storage.

The verbs block; loops call them in threads.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path

import msgspec

from corral import files
from corral.node.storage import clone as clones, disk as disks, disk_space, volume as volumes
from corral.node.storage.disk_space import Room, Space, shown
from corral.node.storage.error import InUse, NoRoom, NoSuchVolume, StorageError
from corral.node.storage.record_cache import Ledger
from corral.node.storage.volume import Format, Record, Stored

BLOCK = 4096
"""Sizes are whole multiples of it, so that disks of any block size end where their files end."""


class Storage:
    """Keeps volumes by their handle.

    ``space`` tells what the file system has; all paths that it answers are on that one.
    """

    def __init__(
        self, directory: Path, *, space: Callable[[Path], Space] = disk_space.space
    ) -> None:
        self._root = directory
        self._volumes = directory / "volumes"
        self._filling = directory / "filling"
        self._staging = directory / "staging"
        self._space = space
        self._ledger = Ledger(self.find, self.volumes)
        for each in (directory, self._volumes, self._filling, self._staging):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    @cached_property
    def id(self) -> str:
        """Names this storage: the value of a node's label ``corral.dev/storage``."""
        path = self._root / "id"
        with self._locked():
            if not (known := path.read_text() if path.exists() else ""):
                known = uuid.uuid4().hex[:16]
                files.replace(path, known.encode(), durable=True)
        return known

    # ------------------------------------------------------------------ asking

    def find(self, handle: str) -> Stored | None:
        """The volume; None where there is none, or what lies there cannot be read."""
        if not volumes.is_handle(handle):
            return None
        directory = self._volumes / handle
        record = volumes.read(directory)
        return None if record is None else Stored(handle=handle, directory=directory, record=record)

    def present(self, handle: str) -> Stored:
        """The volume.  Raises NoSuchVolume."""
        if (found := self.find(handle)) is None:
            raise NoSuchVolume(f"there is no volume {handle!r}")
        return found

    def is_blank(self, handle: str) -> bool:
        """Whether nothing would be lost with a volume, since nothing was written to it."""
        found = self.find(handle)
        return found is not None and clones.is_replaceable(found)

    def volumes(self) -> Iterator[Stored]:
        """All volumes, by handle."""
        for directory in sorted(self._volumes.iterdir()):
            if (found := self.find(directory.name)) is not None:
                yield found

    def room(self) -> Room:
        return disk_space.measure(self.volumes(), self._space(self._root))

    # ---------------------------------------------------------- making, removing

    def provision(
        self,
        handle: str,
        capacity_bytes: int,
        volume_mode: str = "Filesystem",
        *,
        shareable: bool = False,
        overcommit_percent: int = 0,
    ) -> Stored:
        """Make an empty volume; one that is there already is answered as it is.

        ``shareable``: several machines may write it at the same time.

        Raises StorageError, and NoRoom where the promise could not be kept.
        """
        if not volumes.is_handle(handle):
            raise StorageError(f"{handle!r} is no name of a volume")
        capacity = -(-capacity_bytes // BLOCK) * BLOCK
        with self._locked(handle):
            if (present := self.find(handle)) is not None:
                return present
            self._check_room(handle, capacity, overcommit_percent)
            record = Record(capacity_bytes=capacity, volume_mode=volume_mode, shareable=shareable)
            staged = self._staged(handle)
            staged.mkdir(mode=0o700)
            disks.make_raw(volumes.disk_of(staged, record).path, capacity)
            volumes.lay_down(staged, record)
            staged.rename(self._volumes / handle)
            files.sync_directory(self._volumes)
        return self.present(handle)

    def remove(self, handle: str) -> None:
        """Remove a volume and what was being made for it; one that is missing was removed already.

        Layers that other volumes have stay with them.  Raises InUse.
        """
        if not volumes.is_handle(handle):
            return
        with self._locked(handle):
            staged = self._staged(handle)
            if (present := self.find(handle)) is not None:
                with alone(present) if present.disk.path.exists() else nullcontext():
                    present.directory.rename(staged)
            elif (self._volumes / handle).exists():
                (self._volumes / handle).rename(staged)
            files.sync_directory(self._volumes)
        _erase(staged)
        _erase(self._filling / handle)

    def sweep(self) -> None:
        """Remove what was left by those who were killed; called before anything else is."""
        with self._locked():
            for left in self._staging.iterdir():
                _erase(left)
            for work in self._filling.iterdir():
                if (volume := self.find(work.name)) is None or volume.filled:
                    _erase(work)
            for each in self.volumes():
                volumes.tidy(each.directory, each.record)

    # ----------------------------------------------------------------- content

    def workplace(self, handle: str) -> Path:
        """A directory for making a volume's content in.

        It is there until the content was adopted or the volume removed, whoever is killed until
        then.  Raises NoSuchVolume.
        """
        self.present(handle)
        work = self._filling / handle
        work.mkdir(mode=0o700, exist_ok=True)
        return work

    def adopt(
        self,
        handle: str,
        file: Path,
        format: Format,  # noqa: A002 - a format it is
        *,
        shares_blocks: bool = False,
    ) -> Stored:
        """Let a finished file of the workplace be the volume's content, grown to its capacity.

        A qcow2 file must be one that was written here, see ``corral.node.images.convert``.
        ``shares_blocks``: others have some of its blocks too, see ``corral.node.storage.reflink``.
        What the volume held before is gone then, and so is the workplace: who was killed meanwhile
        sees by the volume's ``filled`` whether there is anything left to do.  Raises StorageError,
        and InUse.
        """
        present = self.present(handle)
        size = disks.size(file, format)
        if size > present.capacity_bytes:
            raise StorageError(
                f"the content of volume {handle} has {size} bytes, and the volume "
                f"{present.capacity_bytes}",
                "ask for more storage",
            )
        if present.record.shareable and format != "raw":
            file, format = disks.unpacked(file), "raw"  # noqa: A001 - as above
            shares_blocks = False
        disks.grow(file, format, present.capacity_bytes)
        file.chmod(0o600)
        disks.sync(file)
        with self._locked(handle):
            present = self.present(handle)
            with alone(present):
                disks.grow(file, format, present.capacity_bytes)  # more was promised meanwhile
                record = msgspec.structs.replace(
                    present.record,
                    format=format,
                    layers=(),
                    shares_blocks=shares_blocks,
                    filled=True,
                )
                # A link, lest the file be in neither place when a kill comes before the record.
                link = present.directory / ".adopted.partial"
                link.unlink(missing_ok=True)
                link.hardlink_to(file)
                link.rename(volumes.disk_of(present.directory, record).path)
                present = volumes.change(present, record)
        _erase(self._filling / handle)
        return present

    def clone(self, source: str, target: str, *, overcommit_percent: int = 0) -> Stored:
        """Let a volume's content be what another one holds now; both then go their own ways.

        No content is copied, unless the file system knows neither reflinks nor hard links, or the
        source stands on too many layers.  What the target held before is gone then.
        Raises NoSuchVolume, StorageError where the target is smaller, NoRoom, and InUse.
        """
        origin, copy = self.present(source), self.present(target)
        if copy.capacity_bytes < origin.capacity_bytes:
            raise StorageError(
                f"volume {target} has {copy.capacity_bytes} bytes, and {source} that it is to be "
                f"a clone of {origin.capacity_bytes}",
                "ask for as much storage as the source has",
            )
        with self._locked(source, target):
            origin, copy = self.present(source), self.present(target)
            with alone(origin), alone(copy):
                self._check_room(target, clones.growth(origin), overcommit_percent)
                if (made := clones.clone(origin, copy)) is not None:
                    return made
        with alone(origin):
            file = self.workplace(target) / "clone"
            clones.copy(origin, file)
        return self.adopt(target, file, "raw")

    # -------------------------------------------------------------------- size

    def promise(self, handle: str, capacity_bytes: int, *, overcommit_percent: int = 0) -> Stored:
        """Promise a volume more space than it has; its disk is then to be grown.

        Raises NoSuchVolume, and NoRoom.
        """
        capacity = -(-capacity_bytes // BLOCK) * BLOCK
        with self._locked(handle):
            present = self.present(handle)
            if capacity > present.capacity_bytes:
                self._check_room(handle, capacity - present.capacity_bytes, overcommit_percent)
                record = msgspec.structs.replace(present.record, capacity_bytes=capacity)
                volumes.write(present.directory, record)
        return self.present(handle)

    def resize(self, handle: str, capacity_bytes: int, *, overcommit_percent: int = 0) -> Stored:
        """Grow a volume that no machine writes.

        Raises NoSuchVolume, NoRoom, and InUse: the promise stands then, and the machine's own QEMU
        has to grow the disk.
        """
        present = self.promise(handle, capacity_bytes, overcommit_percent=overcommit_percent)
        with alone(present):
            disks.grow(present.disk.path, present.record.format, present.capacity_bytes)
            disks.sync(present.disk.path)
        return present

    # ------------------------------------------------------------------- parts

    def _check_room(self, handle: str, more: int, overcommit_percent: int) -> None:
        """Raises NoRoom where so many bytes more cannot be promised."""
        if more <= 0:
            return
        space = self._space(self._root)
        if more <= disk_space.promisable(space, overcommit_percent) - self._ledger.most_bytes():
            return  # however little of the volumes is written yet
        left = disk_space.left(self._ledger.volumes(), space, overcommit_percent)
        if more > left:
            raise NoRoom(
                f"volume {handle} needs {shown(more)}, and {shown(max(0, left))} are left that "
                "are not promised to others",
                "remove volumes, or free space on the host",
            )

    def _staged(self, handle: str) -> Path:
        """A path for a volume on its way in or out; the lock is held."""
        staged = self._staging / handle
        _erase(staged)
        return staged

    @contextmanager
    def _locked(self, *handles: str) -> Iterator[None]:
        """Alone among all who change this storage; held for moments only.

        ``handles``: the volumes whose records may be changed meanwhile.
        """
        descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._ledger.count(descriptor)
            try:
                yield
            finally:
                self._ledger.look(*handles)
        finally:
            os.close(descriptor)


@contextmanager
def alone(volume: Stored) -> Iterator[None]:
    """While no machine writes a volume's disk, and none begins to.

    Whoever opens a disk to write takes a shared lock (flock) on what was opened, which lasts until
    the last descriptor of it is closed: QEMU's, however it ends.  Raises InUse.
    """
    descriptor = os.open(volume.disk.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InUse(f"a machine writes volume {volume.handle}") from None
    finally:
        os.close(descriptor)


def _erase(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
