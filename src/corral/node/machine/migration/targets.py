"""The targets of migrations: how a source reaches the machine that gets its guest.

A target is registered on its host while it can receive.  The source is the only one that calls it.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from corral.aio import Signal
from corral.node.hypervisor import Guest, GuestError, NoAnswerError
from corral.node.machine.migration.handover import Target

_IMAGES: Final = ("*.image.*", "*.iso")
"""Files of container disks, and disks with files for the guest."""


class MigrationTarget(Protocol):
    """The target of one migration."""

    @property
    def disks(self) -> Sequence[str]:
        """Volumes whose disks the source copies."""

    async def open_memory(self) -> socket.socket:
        """Open the stream of the guest's memory, once.  Raises GuestError."""

    async def open_disk(self, volume: str) -> socket.socket:
        """Open a stream to a disk.  Raises GuestError."""

    async def state(self) -> Target:
        """Return how far it is; UNKNOWN if it does not answer."""

    async def complete(self) -> None:
        """Wait until it has all of the guest.  Raises GuestError if it has failed."""

    async def run_guest(self, *, paused: bool) -> None:
        """Have it run the guest; return once its record says so.

        Raises GuestError if it will not, and NoAnswerError if that is unknown.
        """

    async def reported(self) -> None:
        """Wait until the API shows that the guest is there.  Raises NoAnswerError."""

    async def cancel(self, why: str) -> None:
        """Have it end, unless it was told to run the guest."""


class LocalTarget:
    """A target on this host.  ``guest`` is its machine, ``disks`` its copied volumes."""

    def __init__(self, guest: Guest, disks: Sequence[str] = ()) -> None:
        self.guest = guest
        self.disks = disks
        self.memory: socket.socket | None = None
        self.memory_opened = Signal()
        self.changed = Signal()
        """Set when one of the following changes."""
        self.is_complete = guest.received
        self.is_told = False
        self.paused = False
        self.is_running = False
        self.is_reported = False
        self.failure = ""
        self._waiters = Signal()

    async def open_memory(self) -> socket.socket:
        if self.memory is not None:
            raise GuestError("its memory is received already")
        ours, self.memory = socket.socketpair()
        for each in (ours, self.memory):
            each.setblocking(False)  # noqa: FBT003
        self.memory_opened.set()
        return ours

    async def open_disk(self, volume: str) -> socket.socket:
        if volume not in self.disks:
            raise GuestError(f"the target has no disk {volume}")
        return await self.guest.open_disks()

    async def state(self) -> Target:
        if self.failure:
            return Target.ABSENT
        if self.is_told:
            return Target.RUNNING if self.is_running else Target.COMPLETE
        return Target.COMPLETE if self.is_complete else Target.RECEIVING

    async def complete(self) -> None:
        await self._until(lambda: self.is_complete)

    async def run_guest(self, *, paused: bool) -> None:
        self._fail_if_over()
        self.paused, self.is_told = paused, True
        self.changed.set()
        await self._until(lambda: self.is_running)

    async def reported(self) -> None:
        await self._until(lambda: self.is_reported)

    async def cancel(self, why: str) -> None:
        if not self.is_told and not self.failure:
            self.failure = why
            self.changed.set()
            self.notify()

    def notify(self) -> None:
        """Wake the source, as the target has changed."""
        waiters, self._waiters = self._waiters, Signal()
        waiters.set()

    def fail(self, why: str) -> None:
        """Report that the target ends, without having run the guest."""
        self.failure = self.failure or why
        if self.memory is not None:
            self.memory.close()
        self.notify()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._fail_if_over()
            await self._waiters.wait()

    def _fail_if_over(self) -> None:
        if self.failure:
            raise GuestError(f"the target failed: {self.failure}")


class MigrationTargets:
    """The targets on this host, by the uid of their migration.

    ``directories``: of the machines whose guests run on this host, by the uid of their VMI.
    """

    def __init__(self) -> None:
        self._targets: dict[str, LocalTarget] = {}
        self.directories: dict[str, Path] = {}

    def add(self, uid: str, target: LocalTarget) -> None:
        self._targets[uid] = target

    def remove(self, uid: str) -> None:
        self._targets.pop(uid, None)

    def copy_images(self, uid: str, folder: Path) -> None:
        """Give a target the files that its source's disks are based on, and never write to.

        Both must be the same to the byte: the image of a tag may have been replaced since the
        source's start, and a Secret may have changed.  Raises GuestError and OSError.
        """
        if (source := self.directories.get(uid)) is None:
            raise GuestError("the source is not on this host: machines migrate within a host")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for pattern in _IMAGES:
            for each in (source / folder.name).glob(pattern):
                (folder / each.name).unlink(missing_ok=True)
                (folder / each.name).hardlink_to(each)

    async def reach(self, uid: str, node: str) -> MigrationTarget:
        """Return the target of a migration.  Raises NoAnswerError."""
        if (target := self._targets.get(uid)) is None:
            raise NoAnswerError(f"node {node} has no target for this migration")
        return target
