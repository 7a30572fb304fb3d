"""A saved machine on disk: a directory beside the disk of a claim's volume.

    saved/memory        memory and device state, as the hypervisor wrote them
    saved/disks/        the machine's ephemeral disks, which belong to the memory
    saved/machine.json  the seal, a ``SavedMachine``: written last
    saved/UID.broken    the seal, broken by the machine of that uid, which restores this memory

While the seal exists the memory is complete, its guest has stopped executing, and no machine has
restored it.  Exactly one machine can break the seal (by a rename), and does so before its guest
executes anything.  Both are durable, so that no memory is restored twice, even if managers are
killed in between.

Users write a claim's disk only, which is another file: all files here were written by corral.
The methods block; they are called in threads.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from corral import files
from corral.node.hypervisor import MemoryMisfitError

_SEAL = "machine.json"
_MEMORY = "memory"
_DISKS = "disks"


class State(msgspec.Struct, frozen=True):
    """Size in bytes and mtime of a disk, by which a later change is detected."""

    size: int
    changed_ns: int


class SavedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a saved machine.

    volume: name of the directory of the volume that it was saved to.
    identity, instance: see ``corral.api.kinds.vmi.saved_memory.Mark``; saved_at: Unix seconds.
    shape: the hardware that a machine must share to restore the memory.
    paused: whether a user had paused it.
    memory_bytes, digest: size and SHA-256 of the memory.
    disks: the ephemeral disks in ``disks/``.
    others: the persistent disks, by directory and name.
    """

    volume: str
    identity: str
    instance: str
    saved_at: float
    shape: tuple[str, ...]
    paused: bool = False
    memory_bytes: int = 0
    digest: str = ""
    disks: dict[str, State] = {}
    others: dict[str, State] = {}


class SavedMemory:
    """The saved memory in a volume's directory, if any.

    capacity_bytes: size of the volume; None where it does not matter.
    """

    def __init__(self, directory: Path, capacity_bytes: int | None = None) -> None:
        self.directory = directory
        self.capacity_bytes = capacity_bytes
        self._saved = directory / "saved"
        self.memory = self._saved / _MEMORY
        self._disks = self._saved / _DISKS
        self._seal = self._saved / _SEAL

    # -- saving

    def open(self) -> int:
        """Remove what is saved here, and return a descriptor for a new memory.  Raises OSError."""
        self.clear()
        for each in (self._saved, self._disks):
            each.mkdir(mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.memory, flags, 0o600)

    def seal(
        self, saved: SavedMachine, disks: Iterable[Path], others: Iterable[Path]
    ) -> SavedMachine:
        """Link the ephemeral disks, make all durable, and write the seal last.

        disks: ephemeral disks; others: persistent ones.  The caller guarantees that none of them
        is written any more.  Raises OSError, with nothing sealed.
        """
        for disk in disks:
            (self._disks / disk.name).hardlink_to(disk)
        ephemeral = sorted(self._disks.iterdir())
        persistent = [disk for disk in others if disk.exists()]
        # Persistent disks, too: they are compared by mtime, which a guest's fdatasync leaves out.
        for file in (self.memory, *ephemeral, *persistent):
            files.sync_file(file)
        files.sync_directory(self._disks)
        sealed = msgspec.structs.replace(
            saved,
            volume=self.directory.name,
            memory_bytes=self.memory.stat().st_size,
            digest=files.sha256(self.memory),
            disks={disk.name: state(disk) for disk in ephemeral},
            others=states(persistent),
        )
        try:
            files.replace(self._seal, msgspec.json.encode(sealed), durable=True)
            files.sync_directory(self.directory)
        except OSError:
            self._seal.unlink(missing_ok=True)
            raise
        return sealed

    # -- restoring

    def read(self) -> SavedMachine | None:
        """Return the sealed machine; None if there is none, or its seal was broken."""
        saved = files.read_json(self._seal, SavedMachine)
        return saved if saved is not None and saved.volume == self.directory.name else None

    def check(self, saved: SavedMachine) -> None:
        """Raises MemoryMisfitError if the memory or an ephemeral disk was changed or removed."""
        try:
            if self.memory.stat().st_size != saved.memory_bytes:
                raise MemoryMisfitError("the memory file does not have the size that was written")
            if files.sha256(self.memory) != saved.digest:
                raise MemoryMisfitError("the memory file does not match its checksum")
        except FileNotFoundError as error:
            raise MemoryMisfitError("the memory file is missing") from error
        require_unchanged(saved.disks, {disk.name: state(disk) for disk in self._disks.iterdir()})

    def restore_disks(self, saved: SavedMachine, folder: Path) -> None:
        """Link the ephemeral disks into a machine's folder, replacing files of their names.

        Raises MemoryMisfitError if the folder is on another file system, and OSError.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_dev != self.directory.stat().st_dev:
            raise MemoryMisfitError("the machine's disks are on another file system")
        for name in saved.disks:
            (folder / name).unlink(missing_ok=True)
            (folder / name).hardlink_to(self._disks / name)

    def break_seal(self, uid: str) -> bool:
        """Claim the memory for the machine of that uid; False if another one has claimed it.

        Raises OSError.
        """
        broken = self._saved / f"{uid}.broken"
        try:
            self._seal.rename(broken)
        except FileNotFoundError:
            return broken.exists()
        files.sync_directory(self._saved)
        return True

    def clear(self) -> None:
        """Remove the saved machine, the seal first.  Raises OSError."""
        if self._saved.exists():
            self._seal.unlink(missing_ok=True)
            files.sync_directory(self._saved)
            shutil.rmtree(self._saved, ignore_errors=True)


def state(disk: Path) -> State:
    """Raises OSError."""
    found = disk.stat()
    return State(found.st_size, found.st_mtime_ns)


def states(disks: Iterable[Path]) -> dict[str, State]:
    """Return the states of persistent disks, by directory and name, without missing ones."""
    return {f"{disk.parent.name}/{disk.name}": state(disk) for disk in disks if disk.exists()}


def require_unchanged(before: Mapping[str, State], now: Mapping[str, State]) -> None:
    """Raises MemoryMisfitError for the first disk that is missing or was changed."""
    for name, found in before.items():
        if name not in now:
            raise MemoryMisfitError(f"the disk {name} is missing")
        if now[name] != found:
            raise MemoryMisfitError(f"the disk {name} was changed since")
