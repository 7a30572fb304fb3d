"""A checkpoint on disk: a directory of the node, made once and never changed.

    memory           the guest's memory, which the guests of forks map
    devices          the state of its devices, as the hypervisor wrote it
    disks/           copies of its ephemeral disks
    checkpoint.json  a ``Checkpoint``, written last: without it the directory is a failed attempt
    writer/          the hypervisor that writes memory and devices, while it does

QEMU 7.2 opens a file of memory for writing even if it maps a private copy, so that the users of all
machines may write this one; the directory is closed to them, and each sees that one file in its
root directory.  The time of the last change, which only the file's owner could set back, shows
whether any of them has.  The methods block; they are called in threads.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from corral import files
from corral.node.hypervisor import MemoryMisfitError
from corral.node.storage.reflink import reflink
from corral.node.storage.saved_memory import State, require_unchanged, state

MOST_COPIED_BYTES = 256 << 20
"""The most that the disks of a machine may occupy, which stands still while they are copied."""
_RECORD = "checkpoint.json"
_IMAGE = ".image."
"""Part of the names of images, which are linked: nobody writes them."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a checkpoint.

    instance: the VMI, namespace/name; identity: the uid that its hardware is derived from.
    shape: the hardware that a fork must share.
    memory: size and time of the last change of the memory; digest: its SHA-256.
    devices: SHA-256 of the state of the devices.
    disks: the copied disks; bytes: what all files occupy.
    """

    instance: str
    identity: str
    shape: tuple[str, ...]
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
        self.writer = directory / "writer"
        self._disks = directory / "disks"
        self._record = directory / _RECORD

    # -- making

    def begin(self) -> None:
        """Create the directory with an empty memory, without what a failed attempt has left.

        Raises OSError.
        """
        self.remove()
        self.directory.mkdir(parents=True, mode=0o700)
        for each in (self._disks, self.writer):
            each.mkdir(mode=0o700)
        self.memory.touch(mode=0o600)
        if os.geteuid() == 0:
            self.memory.chmod(0o666)

    def open_devices(self) -> int:
        """Return a descriptor for the state of devices.  Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.devices, flags, 0o600)

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
        shutil.rmtree(self.writer, ignore_errors=True)
        disks = sorted(self._disks.iterdir())
        for file in (self.memory, self.devices, *disks):
            files.sync_file(file)
        own = [self.memory, self.devices, *(each for each in disks if _IMAGE not in each.name)]
        sealed = msgspec.structs.replace(
            checkpoint,
            memory=state(self.memory),
            digest=_digest(self.memory),
            devices=_digest(self.devices),
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
        """Raise MemoryMisfitError if a file is missing, or was changed.  Raises OSError."""
        try:
            if state(self.memory) != checkpoint.memory:
                raise MemoryMisfitError("its memory was changed or cut since it was made")
            if _digest(self.devices) != checkpoint.devices:
                raise MemoryMisfitError("the state of its devices does not match its checksum")
            now = {each.name: state(each) for each in self._disks.iterdir()}
        except FileNotFoundError as error:
            raise MemoryMisfitError(f"its file {error.filename} is missing") from error
        require_unchanged(checkpoint.disks, now)

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
        """Remove the checkpoint, its record first: forks that run keep the memory that they map."""
        self._record.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def copied_bytes(disks: Iterable[Path]) -> int:
    """Return what the disks occupy that a checkpoint copies.  Raises OSError."""
    return sum(each.stat().st_blocks * 512 for each in disks if _IMAGE not in each.name)


def _copy(source: Path, target: Path) -> None:
    if not reflink(source, target):
        shutil.copyfile(source, target)
        target.chmod(0o600)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
