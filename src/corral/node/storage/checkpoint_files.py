"""A checkpoint on disk: a directory of the node, made once and never changed.

    memory           the guest's memory, which the guests of forks map
    devices          the state of its devices, as the hypervisor wrote it
    disks/           copies of its ephemeral disks
    checkpoint.json  a ``Checkpoint``, written last: without it the directory is a failed attempt
    saved            the guest as its hypervisor has saved it, until it is split into the above

QEMU opens the memory of a fork for writing, though it maps a private copy, and punches holes into
it when the guest gives memory back.  So forks map a copy of the file that nobody can change: a
memfd with seals.  The methods block; they are called in threads.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import msgspec

from corral import files
from corral.node.hypervisor import MemoryDamagedError, MemoryMisfitError
from corral.node.storage.reflink import reflink
from corral.node.storage.saved_memory import State, require_unchanged, state

MOST_COPIED_BYTES = 256 << 20
"""The most that the disks of a machine may occupy, which stands still while they are copied."""
FREE_BYTES = 256 << 20
"""Free bytes that a checkpoint leaves to the machines that run."""
_ZEROS = bytes(1 << 20)
_PAGE_BYTES = 4096
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_RECORD = "checkpoint.json"
_IMAGE = ".image."
"""Part of the names of images, which are linked: nobody writes them."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a checkpoint.

    key: of the VirtualMachineCheckpoint, namespace/name; taken_at: when, in RFC 3339.
    pause_seconds: how long the guest stood still.
    instance: the VMI, namespace/name; identity: the uid that its hardware is derived from.
    shape: the hardware that a fork must share; volumes: its volumes, with their sources.
    memory: size and time of the last change of the memory; digest: its SHA-256.
    devices: SHA-256 of the state of the devices.
    disks: the copied disks; bytes: what all files occupy.
    """

    key: str
    instance: str
    identity: str
    taken_at: str
    pause_seconds: float = 0.0
    shape: tuple[str, ...]
    volumes: tuple[str, ...] = ()
    memory: State = State(0, 0)
    digest: str = ""
    devices: str = ""
    disks: dict[str, State] = {}
    bytes: int = 0


class CheckpointFiles:
    """The files of one checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.memory = directory / "memory"
        self.devices = directory / "devices"
        self.saved = directory / "saved"
        self._disks = directory / "disks"
        self._record = directory / _RECORD
        self._lock = Lock()
        self._removal = Lock()
        self._sealed = -1
        """The descriptor of the memory that forks map, once one has been started."""

    # -- making

    def begin(self) -> None:
        """Create the directory, without what a failed attempt has left.  Raises OSError."""
        self.remove()
        self.directory.mkdir(parents=True, mode=0o700)
        self._disks.mkdir(mode=0o700)

    def open_saved(self, room: int) -> int:
        """Return a descriptor for a saved guest, with room for so many bytes.  Raises OSError.

        The room is written, so that the disk cannot be full while the guest stands still, and in
        the page cache, which saves two thirds of the time that the guest is written in.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.saved, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, room)
            for begin in range(0, room, len(_ZEROS)):
                os.pwrite(descriptor, _ZEROS[: room - begin], begin)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def trim(self, descriptor: int) -> None:
        """Cut the room that the saved guest has not taken.  Raises OSError."""
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))

    def copy_disks(self, disks: Iterable[Path]) -> None:
        """Copy disks that nobody writes at present; images are linked.  Raises OSError."""
        for disk in disks:
            copy = self._disks / disk.name
            if _IMAGE in disk.name:
                copy.hardlink_to(disk)
            else:
                _copy(disk, copy)

    def seal(self, checkpoint: Checkpoint) -> Checkpoint:
        """Make all durable, and write the record.  Raises OSError."""
        self.saved.unlink(missing_ok=True)
        disks = sorted(self._disks.iterdir())
        for file in (self.memory, self.devices, *disks):
            files.sync_file(file)
        own = [self.memory, self.devices, *(each for each in disks if _IMAGE not in each.name)]
        sealed = msgspec.structs.replace(
            checkpoint,
            memory=state(self.memory),
            digest=files.sha256(self.memory),
            devices=files.sha256(self.devices),
            disks={each.name: state(each) for each in disks},
            bytes=sum(each.stat().st_blocks * 512 for each in own),
        )
        files.replace(self._record, msgspec.json.encode(sealed), durable=True)
        return sealed

    # -- starting forks

    def read(self) -> Checkpoint | None:
        """Return the record; None if there is no complete checkpoint."""
        return files.read_json(self._record, Checkpoint)

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise MemoryDamagedError if a file is missing, or was changed.  Raises OSError."""
        with _damage_reported():
            if state(self.memory) != checkpoint.memory:
                raise MemoryDamagedError("its memory was changed or cut since it was made")
            if files.sha256(self.devices) != checkpoint.devices:
                raise MemoryDamagedError("the state of its devices does not match its checksum")
            now = {each.name: state(each) for each in self._disks.iterdir()}
            try:
                require_unchanged(checkpoint.disks, now)
            except MemoryMisfitError as error:
                raise MemoryDamagedError(str(error)) from error

    def open_pages(self, checkpoint: Checkpoint) -> int:
        """Return a descriptor of the memory that forks map, which the caller closes.

        The memory is read, and compared with its digest, for the first fork only: the others share
        its pages.  Raises MemoryDamagedError and OSError.
        """
        with self._lock, _damage_reported():
            if self._sealed < 0:
                self._sealed = _sealed_copy(self.memory, checkpoint.digest)
            return fcntl.fcntl(self._sealed, fcntl.F_DUPFD_CLOEXEC, 0)

    def memory_bytes(self) -> int:
        """Return what the memory that forks share occupies; 0 if it is gone.  Raises OSError."""
        try:
            return self.memory.stat().st_blocks * 512
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Release the memory that forks map, which those that run keep."""
        with self._lock:
            if self._sealed >= 0:
                os.close(self._sealed)
                self._sealed = -1

    def place_disks(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Copy the disks into a machine's folder, replacing files of their names.

        Raises MemoryMisfitError if the folder is on another file system, and OSError.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_dev != self.directory.stat().st_dev:
            raise MemoryMisfitError("the machine's disks are on another file system")
        for name in checkpoint.disks:
            target = folder / name
            target.unlink(missing_ok=True)
            if _IMAGE in name:
                target.hardlink_to(self._disks / name)
            else:
                _copy(self._disks / name, target)

    def remove(self) -> None:
        """Remove the checkpoint, its record first: forks that run keep the memory that they map.

        Raises OSError.
        """
        self.close()
        with self._removal:
            if self.directory.exists():
                self._record.unlink(missing_ok=True)
                shutil.rmtree(self.directory)


def copied_bytes(disks: Iterable[Path]) -> int:
    """Return what the disks occupy that a checkpoint copies.  Raises OSError."""
    return sum(each.stat().st_blocks * 512 for each in disks if _IMAGE not in each.name)


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Raise MemoryDamagedError for a file that is missing, or that the disk cannot read."""
    try:
        yield
    except FileNotFoundError as error:
        raise MemoryDamagedError(f"its file {error.filename} is missing") from error
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise MemoryDamagedError(f"its files cannot be read: {error.strerror}") from error


def _copy(source: Path, target: Path) -> None:
    if not reflink(source, target):
        shutil.copyfile(source, target)
        target.chmod(0o600)


def _sealed_copy(file: Path, digest: str) -> int:
    """Return a descriptor of a copy in memory that nobody can change, with the same holes.

    Private copies of its pages may be mapped and written.  Raises MemoryDamagedError and OSError.
    """
    copy = os.memfd_create("checkpoint", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        found = _copy_pages(file, copy)
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(copy)
        raise
    if found != digest:
        os.close(copy)
        raise MemoryDamagedError("its memory does not match its checksum")
    return copy


def _copy_pages(file: Path, copy: int) -> str:
    """Copy the pages that are not zero; return the SHA-256 of all.  Raises OSError."""
    found = hashlib.sha256()
    with file.open("rb", buffering=0) as content:
        size = os.fstat(content.fileno()).st_size
        os.ftruncate(copy, size)
        for at in range(0, size, len(_ZEROS)):
            part = os.pread(content.fileno(), len(_ZEROS), at)
            found.update(part)
            _write_pages(copy, part, at)
        os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return found.hexdigest()


def _write_pages(file: int, content: bytes, at: int) -> None:
    """Write what is not zero, by pages."""
    if content == _ZEROS[: len(content)]:
        return
    for begin in range(0, len(content), _PAGE_BYTES):
        page = content[begin : begin + _PAGE_BYTES]
        if page != _ZEROS[: len(page)]:
            os.pwrite(file, page, at + begin)
