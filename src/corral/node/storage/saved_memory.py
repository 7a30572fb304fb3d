"""A saved machine on disk: a directory beside the disk of a claim's volume.

    saved/memory        memory and device state, as the hypervisor wrote them
    saved/disks/        the machine's throw-away disks: they belong to the memory
    saved/machine.json  the seal, a ``Saved``: written last
    saved/UID.broken    the seal, broken by the machine of that uid, which goes on from here

The seal decides.  While it is there the memory is whole, and nobody has gone on from it: the guest
that it is of executes nothing any more.  One machine can break it, and does so before its guest
executes anything.  Both survive a power cut.  So no memory is used twice, however many managers are
killed meanwhile, and whoever else would go on from it.

A user fills a claim by its disk only, which is another file: so what stands here was written here.
The verbs block; they are called in threads.
"""

import hashlib
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
    """By what it is seen that a disk was not changed: its size in bytes, and its last change."""

    size: int
    changed_ns: int


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What was saved.

    volume: the directory of the volume that it was saved to, by name.
    identity, instance: see ``corral.api.kinds.vmi.saved_memory.Mark``; saved_at: seconds of the
    epoch. shape: what a machine must have in common with it to go on from its memory.
    paused: whether it was paused by its user.
    memory_bytes, digest: of the memory.
    disks: the throw-away disks in ``disks/``.
    others: the disks that stay where they are, by directory and name.
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


class Place:
    """Where one machine can be saved: ``directory`` is that of a volume.

    ``capacity_bytes``: what that is promised; None where it does not matter.
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
        """A descriptor for a memory to be written to, in place of whatever was kept here.

        Raises OSError.
        """
        self.clear()
        for each in (self._saved, self._disks):
            each.mkdir(mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.memory, flags, 0o600)

    def seal(self, saved: Saved, disks: Iterable[Path], others: Iterable[Path]) -> Saved:
        """Keep the memory that was written, and the disks that belong to it.

        Nobody may write any of them any more.  Raises OSError, with nothing sealed.
        """
        for disk in disks:
            (self._disks / disk.name).hardlink_to(disk)
        kept = sorted(self._disks.iterdir())
        stay = [disk for disk in others if disk.exists()]
        # Disks that stay, too: they are compared by their times, which a guest's flush leaves out.
        for file in (self.memory, *kept, *stay):
            files.sync_file(file)
        files.sync_directory(self._disks)
        sealed = msgspec.structs.replace(
            saved,
            volume=self.directory.name,
            memory_bytes=self.memory.stat().st_size,
            digest=_digest(self.memory),
            disks={disk.name: state(disk) for disk in kept},
            others=states(stay),
        )
        try:
            files.replace(self._seal, msgspec.json.encode(sealed), durable=True)
            files.sync_directory(self.directory)
        except OSError:
            self._seal.unlink(missing_ok=True)
            raise
        return sealed

    # -- going on from it

    def read(self) -> Saved | None:
        """What is kept here; None where nothing is, or it was used up."""
        saved = files.read_json(self._seal, Saved)
        return saved if saved is not None and saved.volume == self.directory.name else None

    def check(self, saved: Saved) -> None:
        """Raises MemoryMisfitError where memory or throw-away disks are others than were saved."""
        try:
            if self.memory.stat().st_size != saved.memory_bytes:
                raise MemoryMisfitError("the file of the memory has not the size that was written")
            if _digest(self.memory) != saved.digest:
                raise MemoryMisfitError("the file of the memory does not hold what was written")
        except FileNotFoundError as error:
            raise MemoryMisfitError("the file of the memory is missing") from error
        changed(saved.disks, {disk.name: state(disk) for disk in self._disks.iterdir()})

    def take_out(self, saved: Saved, folder: Path) -> None:
        """Link the throw-away disks into a machine's folder, in place of what has their names.

        Raises MemoryMisfitError where the folder is on another file system, and OSError.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_dev != self.directory.stat().st_dev:
            raise MemoryMisfitError("the machine's disks are on another file system")
        for name in saved.disks:
            (folder / name).unlink(missing_ok=True)
            (folder / name).hardlink_to(self._disks / name)

    def break_seal(self, uid: str) -> bool:
        """Let a machine be the one that goes on from here; False if another one does.

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
        """Remove what is kept here, the seal first.  Raises OSError."""
        if self._saved.exists():
            self._seal.unlink(missing_ok=True)
            files.sync_directory(self._saved)
            shutil.rmtree(self._saved, ignore_errors=True)


def state(disk: Path) -> State:
    """Raises OSError."""
    found = disk.stat()
    return State(found.st_size, found.st_mtime_ns)


def states(disks: Iterable[Path]) -> dict[str, State]:
    """The states of disks that outlive machines, by directory and name; without missing ones."""
    return {f"{disk.parent.name}/{disk.name}": state(disk) for disk in disks if disk.exists()}


def changed(before: Mapping[str, State], now: Mapping[str, State]) -> None:
    """Raises MemoryMisfitError for the first disk that is not as it was."""
    for name, found in before.items():
        if name not in now:
            raise MemoryMisfitError(f"the disk {name} is missing")
        if now[name] != found:
            raise MemoryMisfitError(f"the disk {name} was changed since")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
