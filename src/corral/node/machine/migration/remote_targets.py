"""Targets of migrations on other hosts: a channel for commands and reports, one for each stream.

A channel that breaks leaves the target UNKNOWN, until it is reached again (``handover``).
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from corral.aio import Background, Signal
from corral.api.encoding import decode_as
from corral.api.errors import LONGEST_MESSAGE, ApiError, NotFound, shortened
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.client.stream import StreamLost
from corral.failures import describe
from corral.node.hypervisor import GuestError, NoAnswerError
from corral.node.machine.migration.channel import Channel, Links, relay
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.messages import Command, Report
from corral.node.machine.migration.source_files import FileCopies
from corral.node.machine.migration.targets import (
    MigrationTarget,
    no_target,
    stream_pair,
    target_failed,
)

CONTROL, MEMORY, DISK = "control", "memory", "disk"
"""The streams of a migration, as a query names them."""

REPORT_SECONDS: Final = 10.0
"""Longest wait for the first report, connecting included."""

CANCEL_SECONDS: Final = 1.0
"""Longest wait for a target that is to end, while the guest may stand still."""

_Opened = asyncio.Future[None]

log = structlog.get_logger()


class RemoteTargets:
    """The targets on other hosts, each with one channel that is reused while it lasts.

    Channels and relays live in ``tasks``.
    """

    def __init__(self, links: Links, files: FileCopies, tasks: Background) -> None:
        self._links = links
        self._files = files
        self._tasks = tasks
        self._targets: dict[str, RemoteTarget] = {}

    async def reach(self, uid: str, node: str) -> MigrationTarget:
        """Return the target of a migration on a node.  Raises NoAnswerError."""
        found = self._targets.get(uid)
        if found is not None and found.is_connected:
            return found
        target = self._targets[uid] = RemoteTarget(self._links, self._tasks, uid, node)
        try:
            await target.connect(on_end=lambda: self._forget(uid, target))
        except BaseException:
            target.release()
            self._forget(uid, target)
            raise
        return target

    def _forget(self, uid: str, target: "RemoteTarget") -> None:
        if self._targets.get(uid) is target:
            del self._targets[uid]

    async def copy_files(
        self, uid: str, vmi: VirtualMachineInstance, node: str, folder: Path
    ) -> None:
        """Copy the files of a source.  Raises GuestError and OSError."""
        query = {"migration": uid, "vmi": vmi.metadata.uid}
        await self._files.copy(node, query, vmi, folder)


class RemoteTarget:
    """The target of one migration on another host."""

    def __init__(self, links: Links, tasks: Background, uid: str, node: str) -> None:
        self._links = links
        self._tasks = tasks
        self._uid = uid
        self._node = node
        self._channel: Channel | None = None
        self._report = Report(TargetState.UNKNOWN)
        self._changed = Signal()
        self._streams: list[asyncio.Task[None]] = []

    @property
    def is_connected(self) -> bool:
        """True while its reports arrive."""
        return self._channel is not None

    @property
    def disks(self) -> Sequence[str]:
        return self._report.disks

    async def connect(self, *, on_end: Callable[[], None] = lambda: None) -> None:
        """Open the channel, and wait for the first report.  Raises NoAnswerError."""
        opened: _Opened = asyncio.get_running_loop().create_future()
        self._start(self._follow(opened, on_end), opened, "reports")
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                await opened
        except NotFound:
            raise no_target(self._node) from None
        except TimeoutError:
            why = f"node {self._node} has reported nothing for {REPORT_SECONDS:g} s"
            raise NoAnswerError(why) from None
        except (ApiError, StreamLost, msgspec.DecodeError) as error:
            raise NoAnswerError(_said(error)) from error

    def release(self) -> None:
        for each in self._streams:
            each.cancel()

    def _start(self, stream: Coroutine[Any, Any, None], opened: _Opened, what: str) -> None:
        """Start a stream.  Raises CancelledError if the process ends, and starts no more tasks."""
        try:
            task = self._tasks.start(stream, name=f"migration {self._uid}: {what}")
        except RuntimeError:
            stream.close()
            raise asyncio.CancelledError from None
        self._streams.append(task)
        task.add_done_callback(self._streams.remove)
        # One that is released before its first step does nothing itself.
        task.add_done_callback(lambda _: _resolve(opened, StreamLost("")))

    async def _follow(self, opened: _Opened, on_end: Callable[[], None]) -> None:
        """Receive reports until the channel ends."""
        lost: Exception = NoAnswerError(f"node {self._node} has closed the connection")
        try:
            async with self._links.open(self._node, self._query(CONTROL)) as channel:
                async for message in channel:
                    self._report = decode_as(message, Report)
                    self._channel = None if self._report.is_last else channel
                    _resolve(opened)
                    self._notify()
        except (ApiError, StreamLost, msgspec.DecodeError) as error:
            lost = error
        except Exception as error:
            # Top-level handler: its fault would end the process, and with it all other machines.
            log.exception("reports of a migration failed", uid=self._uid, node=self._node)
            lost = StreamLost(describe(error))
        finally:
            self._channel = None
            self.release()  # without reports, what the others carry is of no use
            on_end()
            _resolve(opened, lost)
            self._notify()

    async def open_memory(self) -> socket.socket:
        return await self._open(self._query(MEMORY), "its memory")

    async def open_disk(self, volume: str) -> socket.socket:
        return await self._open(self._query(DISK, volume=volume), f"its disk {volume}")

    async def _open(self, query: Mapping[str, str], what: str) -> socket.socket:
        """Return a socket whose other end is relayed to the target.  Raises GuestError."""
        ours, theirs = stream_pair()
        opened: _Opened = asyncio.get_running_loop().create_future()
        try:
            self._start(self._relay(query, theirs, opened), opened, what)
            await opened
        except BaseException as error:
            ours.close()
            theirs.close()
            if isinstance(error, ApiError | StreamLost):
                raise GuestError(f"{what} cannot be sent: {_said(error)}") from error
            raise
        return ours

    async def _relay(self, query: Mapping[str, str], line: socket.socket, opened: _Opened) -> None:
        with line:
            try:
                async with self._links.open(self._node, query) as channel:
                    _resolve(opened)
                    await relay(channel, line)
            except (ApiError, StreamLost) as error:
                _resolve(opened, error)
            except Exception as error:  # as in _follow
                log.exception("stream of a migration failed", uid=self._uid, node=self._node)
                _resolve(opened, StreamLost(describe(error)))

    async def state(self) -> TargetState:
        if self._report.failure:
            return TargetState.ABSENT
        return (
            self._report.state
            if self.is_connected or self._report.reported
            else TargetState.UNKNOWN
        )

    async def complete(self) -> None:
        await self._until(lambda: self._report.state in {TargetState.COMPLETE, TargetState.RUNNING})

    async def expect_guest(self) -> None:
        await self._send(Command(expect=True))

    async def run_guest(self, *, paused: bool) -> None:
        await self._send(Command(run=True, paused=paused))
        await self._until(lambda: self._report.state is TargetState.RUNNING)

    async def reported(self) -> None:
        await self._until(lambda: self._report.reported)

    async def cancel(self, why: str) -> None:
        """Have it end; one that is not reached sees in the API that the migration has failed."""
        if self.is_connected:
            with suppress(GuestError, TimeoutError):  # its failure is what is awaited
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._send(Command(cancel=why))
                    await self._until(lambda: False)

    async def _send(self, command: Command) -> None:
        """Send a command.  Raises GuestError."""
        self._fail_if_over()
        assert self._channel is not None
        try:
            await self._channel.send(msgspec.json.encode(command))
        except StreamLost as error:
            raise self._lost() from error

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._fail_if_over()
            await self._changed.wait()

    def _fail_if_over(self) -> None:
        if self._report.failure:
            raise target_failed(shortened(self._report.failure, LONGEST_MESSAGE))
        if not self.is_connected:
            raise self._lost()

    def _lost(self) -> NoAnswerError:
        return NoAnswerError(f"the connection to node {self._node} is lost")

    def _notify(self) -> None:
        changed, self._changed = self._changed, Signal()
        changed.set()

    def _query(self, stream: str, **further: str) -> Mapping[str, str]:
        return {"migration": self._uid, "stream": stream, **further}


def _said(error: BaseException) -> str:
    """Return the message of an error from another host, within the limit of messages."""
    return shortened(describe(error), LONGEST_MESSAGE)


def _resolve(opened: _Opened, error: Exception | None = None) -> None:
    """Set how opening has ended, if it has not yet; nobody may wait for it any more."""
    if opened.done():
        return
    if error is None:
        opened.set_result(None)
    else:
        opened.set_exception(error)
