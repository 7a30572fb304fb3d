"""The targets of migrations: the machines that get the guests of sources.

A target is registered on its host while it can receive.  The source is the only one that calls it:
directly on the same host, else over the network (``remote_targets``).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from corral.aio import Signal
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hypervisor import Guest, GuestError, NoAnswerError
from corral.node.machine.migration import source_files
from corral.node.machine.migration.handover import TargetState

_NO_KEY: Final = Key("", "")


class MigrationTarget(Protocol):
    """The target of one migration."""

    @property
    def disks(self) -> Sequence[str]:
        """Volumes whose disks the source copies."""

    async def open_memory(self) -> socket.socket:
        """Open the stream of the guest's memory, once.  Raises GuestError."""

    async def open_disk(self, volume: str) -> socket.socket:
        """Open the stream to a disk, once.  Raises GuestError."""

    async def state(self) -> TargetState:
        """Return its state; UNKNOWN if it does not answer."""

    async def complete(self) -> None:
        """Wait until it has all of the guest.  Raises GuestError if it has failed."""

    async def expect_guest(self) -> None:
        """Have the addresses lead to it: the guest stands still, and is about to be handed over.

        Raises GuestError.
        """

    async def run_guest(self, *, paused: bool) -> None:
        """Have it run the guest; return once its record says so.

        Raises GuestError if it will not, and NoAnswerError if that is unknown.
        """

    async def reported(self) -> None:
        """Wait until the API shows that the guest is there.  Raises NoAnswerError."""

    async def cancel(self, why: str) -> None:
        """Have it end, unless it was requested to run the guest.

        Returns once addresses lead to the source again, or if it does not answer in time.
        """

    def release(self) -> None:
        """End the streams to it: the source is done with it."""


async def _nothing() -> None:
    pass


class LocalTarget:
    """A target on this host.

    guest: its machine; disks: its copied volumes; vmi: its VMI, of the uid ``uid``; take_over:
    leads the addresses to it; give_back: undoes that.
    """

    def __init__(
        self,
        guest: Guest,
        disks: Sequence[str] = (),
        vmi: Key = _NO_KEY,
        uid: str = "",
        *,
        take_over: Callable[[], Awaitable[None]] = _nothing,
        give_back: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.guest = guest
        self._take_over = take_over
        self._give_back = give_back
        self.disks = disks
        self.vmi = vmi
        self.uid = uid
        self.memory: socket.socket | None = None
        self.sender: socket.socket | None = None
        """The other end of ``memory`` once more, which the machine is to hold."""
        self.memory_opened = Signal()
        self.changed = Signal()
        """Set when the source has decided."""
        self.is_complete = guest.received
        self.run_requested = False
        self.paused = False
        self.is_running = False
        self.is_reported = False
        self.has_left = False
        """True once only the API shows whether the guest has run."""
        self.failure = ""
        self._opened: set[str] = set()
        """Volumes to which there is a stream, or was."""
        self._waiters = Signal()

    async def open_memory(self) -> socket.socket:
        if self.memory is not None:
            raise GuestError("its memory is received already")
        ours, self.memory = stream_pair()
        self.memory_opened.set()
        return ours

    async def open_remote_memory(self) -> socket.socket:
        """Open the stream of the memory of a guest on another host, which the agent relays.

        The stream does not end with an agent that is killed: QEMU would exit, and its network with
        it, where the addresses lead already.  Connections of the guest would be reset.  The next
        agent gives the addresses back first.  Raises GuestError.
        """
        ours = await self.open_memory()
        self.sender = ours.dup()
        return ours

    async def open_disk(self, volume: str) -> socket.socket:
        if volume not in self.disks:
            raise GuestError(f"the target has no disk {volume}")
        if volume in self._opened:
            raise GuestError(f"its disk {volume} is received already")
        self._opened.add(volume)
        return await self.guest.open_disks()

    @property
    def observed(self) -> TargetState:
        """Its present state."""
        if self.failure:
            return TargetState.ABSENT
        if self.has_left:
            return TargetState.UNKNOWN
        if self.run_requested:
            return TargetState.RUNNING if self.is_running else TargetState.COMPLETE
        return TargetState.COMPLETE if self.is_complete else TargetState.RECEIVING

    async def state(self) -> TargetState:
        return self.observed

    async def complete(self) -> None:
        await self._until(lambda: self.is_complete)

    async def expect_guest(self) -> None:
        if not self.failure:
            await self._take_over()

    def request_run(self, *, paused: bool) -> None:
        """Request it to run the guest."""
        self.paused, self.run_requested = paused, True
        self.changed.set()

    async def run_guest(self, *, paused: bool) -> None:
        self._fail_if_over()
        self.request_run(paused=paused)
        await self._until(lambda: self.is_running)

    async def reported(self) -> None:
        await self._until(lambda: self.is_reported)

    async def cancel(self, why: str) -> None:
        if not self.run_requested and not self.failure:
            await self.give_up(why)

    async def give_up(self, why: str) -> None:
        """Set why it gets no guest; notify of that once the addresses lead to the source again."""
        self.failure = self.failure or why
        await self._give_back()
        self.changed.set()
        self.notify()

    def release(self) -> None:
        pass  # their ends are in the two QEMUs

    def notify(self) -> None:
        """Wake the source, as the target has changed."""
        waiters, self._waiters = self._waiters, Signal()
        waiters.set()

    async def notified(self) -> None:
        """Wait until ``notify`` is called."""
        await self._waiters.wait()

    def fail(self, why: str) -> None:
        """Report that the target ends, without having run the guest."""
        self.failure = self.failure or why
        for each in (self.memory, self.sender):
            if each is not None:
                each.close()
        self.notify()

    def leave(self) -> None:
        """End without a report on the guest, which it was requested to run."""
        self.has_left = True
        self.notify()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._fail_if_over()
            await self.notified()

    def _fail_if_over(self) -> None:
        if self.failure:
            raise target_failed(self.failure)
        if self.has_left:
            raise NoAnswerError("the target was stopped")


class RemoteHosts(Protocol):
    """The other hosts, to which and from which guests migrate."""

    async def reach(self, uid: str, node: str) -> MigrationTarget:
        """Return the target of a migration on a node.  Raises NoAnswerError."""

    async def copy_files(
        self, uid: str, vmi: VirtualMachineInstance, node: str, folder: Path
    ) -> None:
        """Copy the files of a source (``source_files``).  Raises GuestError and OSError."""


class MigrationTargets:
    """The targets on this host by the uid of their migration, and the way to those of other hosts.

    own: whether a node is on this host; remote: the other hosts, if there are any.
    ``directories``: of the machines whose guests run on this host, by the uid of their VMI.
    """

    def __init__(
        self,
        own: Callable[[str], bool] = lambda _node: True,
        remote: RemoteHosts | None = None,
    ) -> None:
        self._targets: dict[str, LocalTarget] = {}
        self._own = own
        self._remote = remote
        self.directories: dict[str, Path] = {}

    def add(self, uid: str, target: LocalTarget) -> None:
        self._targets[uid] = target

    def remove(self, uid: str) -> None:
        self._targets.pop(uid, None)

    def find(self, uid: str) -> LocalTarget | None:
        """Return the target of a migration, if it is on this host."""
        return self._targets.get(uid)

    def is_own(self, node: str) -> bool:
        """Report whether a node is on this host."""
        return self._remote is None or self._own(node)

    async def reach(self, uid: str, node: str) -> MigrationTarget:
        """Return the target of a migration.  Raises NoAnswerError."""
        if self._remote is not None and not self._own(node):
            return await self._remote.reach(uid, node)
        if (target := self._targets.get(uid)) is None:
            raise no_target(node)
        return target

    async def copy_files(
        self, uid: str, vmi: VirtualMachineInstance, node: str, folder: Path
    ) -> None:
        """Give a target the files that its source's disks are based on, and never write to.

        uid: of the migration; node: the source's.  Raises GuestError and OSError.
        """
        if self._remote is not None and not self._own(node):
            await self._remote.copy_files(uid, vmi, node, folder)
        elif (source := self.directories.get(vmi.metadata.uid)) is None:
            raise GuestError(f"node {node} does not have the source of this migration")
        else:
            await asyncio.to_thread(source_files.link, source, folder)


def no_target(node: str) -> NoAnswerError:
    """Return the error of a node that does not know the target of a migration (any more)."""
    return NoAnswerError(f"node {node} has no target for this migration")


def target_failed(why: str) -> GuestError:
    """Return the error of a target that ends."""
    return GuestError(f"the target failed: {why}")


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a stream, non-blocking."""
    pair = socket.socketpair()
    for each in pair:
        each.setblocking(False)  # noqa: FBT003
    return pair
