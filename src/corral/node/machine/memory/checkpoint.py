"""Makes a checkpoint of a running machine; the manager may be killed after each step.

    room for the saved guest is on the disk
    recorded: stands still     the next manager lets the guest go on
    the guest is stopped and saved, as for a restore; its disks are copied
    the guest goes on
    recorded: goes on
    the saved guest is split: its pages into a file of memory, and the state of its devices
    the record of the checkpoint is written: it is complete

What an interrupted attempt leaves is removed by the next manager.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.aio import Background, Signal, finished, run_until, wait_at_most
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.forkable import obstacles, volumes_of
from corral.api.kinds.vmi.saved_memory import identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import rfc3339
from corral.failures import describe
from corral.node.hypervisor import Guest, GuestError
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState
from corral.node.storage.checkpoint_files import (
    FREE_BYTES,
    MOST_COPIED_BYTES,
    Checkpoint,
    CheckpointFiles,
    copied_bytes,
)
from corral.node.volumes.source import FOLDER

_SECONDS: Final = 300.0
"""The longest that a checkpoint may take; its guest stands still for a small part of that."""
_STILL_SECONDS: Final = 10.0
"""The longest that a guest may be saved: it stands still meanwhile."""
_RETRY_SECONDS: Final = 1.0
"""Time between attempts to let a guest go on."""
_END_SECONDS: Final = 5.0
"""The longest that the end of a manager waits for a guest to go on."""
_DEVICES_BYTES: Final = 64 << 20
"""Room for the state of devices, with video memory."""

Split = Callable[[Path, Path, Path], Awaitable[None]]
"""Splits a saved guest (``Hypervisor.split``)."""

log = structlog.get_logger()


class CheckpointError(Exception):
    """A checkpoint cannot be made: a reason for conditions, and a message.

    ``is_transient``: it may be possible soon, without a change of the VMI.
    """

    def __init__(self, reason: str, message: str, *, is_transient: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_transient = is_transient


class MemoryCheckpoint:
    """Makes checkpoints of one machine.

    ``split`` splits its saved guest; ``on_idle`` is called when requests to the guest that had to
    wait may be sent.
    """

    def __init__(self, state: MachineState, split: Split, on_idle: Callable[[], None]) -> None:
        self._state = state
        self._split = split
        self._on_idle = on_idle
        self._overdue = Signal()
        """Set while the guest stands still although no checkpoint is being made."""
        self._stops = False
        """Whether the machine is to stop."""
        self._cancelled = Signal()
        self.idle = Signal(is_set=True)
        """Cleared while the guest is stopped, so that requests to it would be lost."""

    def cancel(self) -> None:
        """Let the guest go on for good: the machine is to stop."""
        self._stops = True
        self._cancelled.set()

    async def finish(self, guest: Guest) -> None:
        """Have the guest go on, though nothing follows its changes any more; wait for that."""
        if not self.idle.is_set():
            self._cancelled.set()
            async with Background() as tasks:
                tasks.start(_follow(guest), name="follow")
                await wait_at_most(self.idle, _END_SECONDS)

    async def make(
        self, files: CheckpointFiles, guest: Guest, vmi: VirtualMachineInstance, key: str
    ) -> Checkpoint:
        """Make the checkpoint of a key; the guest goes on.  Raises CheckpointError."""
        self._require_possible(vmi)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._make(files, guest, vmi, key)
        except TimeoutError as error:
            why = f"it is not complete after {_SECONDS:g} seconds"
            raise CheckpointError("TimedOut", why) from error
        except (GuestError, OSError) as error:
            raise CheckpointError("CheckpointFailed", describe(error)) from error

    def _require_possible(self, vmi: VirtualMachineInstance) -> None:
        if why := next(obstacles(vmi.spec), ""):
            raise CheckpointError("NotSupported", why)
        if self._state.turn.locked():
            text = "the VMI migrates, is being saved, or another checkpoint of it is made"
            raise CheckpointError("Busy", text, is_transient=True)
        if self._state.record.stands_still:
            text = "the VMI stands still for a checkpoint that was interrupted"
            raise CheckpointError("Busy", text, is_transient=True)
        if self._stops or self._state.record.stage is not Stage.STARTED:
            raise CheckpointError("NotRunning", "the VMI does not run, or is being stopped")

    async def keep_going(self, guest: Guest) -> None:
        """Let a guest go on that a checkpoint has left behind standing still, until cancelled.

        It may be that of an earlier manager, or one whose guest did not go on at once.
        """
        if self._state.record.stands_still:
            self._overdue.set()
        while True:
            await self._overdue.wait()
            try:
                await self._go_on(guest)
            except (GuestError, OSError) as error:
                uid = self._state.record.uid
                log.warning("a guest stands still", uid=uid, error=describe(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._overdue.clear()

    async def _go_on(self, guest: Guest) -> None:
        """Let a guest go on that stands still for a checkpoint.  Raises GuestError and OSError."""
        if self._state.record.stands_still:
            await guest.cancel_save()
            await guest.resume()
            self._state.write(msgspec.structs.replace(self._state.record, stands_still=False))
            self._state.step("goes on")
        self._state.set_facts(replace(self._state.facts, saving=False))

    async def _make(
        self, files: CheckpointFiles, guest: Guest, vmi: VirtualMachineInstance, key: str
    ) -> Checkpoint:
        async with self._state.turn:
            shape = await guest.shape()  # fails if devices were plugged in: a fork would lack them
            disks = await asyncio.to_thread(_disks, self._state.directory / FOLDER, vmi)
            usage, most = guest.usage(), guest_memory(vmi.spec.domain).rounded_up()
            room = min(usage.memory_bytes if usage is not None else most, most) + _DEVICES_BYTES
            saved = await finished(
                asyncio.to_thread(_begin, files, disks, room, most), discard=os.close
            )
            try:
                self._state.step("checkpoint begun")
                taken_at = rfc3339(datetime.now(UTC))
                pause = await self._cut(guest, files, disks, saved)
                await asyncio.to_thread(files.trim, saved)
            finally:
                os.close(saved)
            if await guest.shape() != shape:
                raise GuestError("a disk was plugged in or unplugged meanwhile")
        await self._split(files.saved, files.memory, files.devices)
        self._state.step("checkpoint written")
        made = Checkpoint(
            key=key,
            instance=str(vmi.key),
            identity=identity(vmi),
            taken_at=taken_at,
            pause_seconds=pause,
            shape=shape,
            volumes=volumes_of(vmi),
        )
        return await finished(asyncio.to_thread(files.seal, made))

    async def _cut(
        self, guest: Guest, files: CheckpointFiles, disks: list[Path], saved: int
    ) -> float:
        """Save the guest, and copy its disks; return the seconds for which it stood still.

        Raises CheckpointError, GuestError and OSError.
        """
        state, now = self._state, asyncio.get_running_loop().time
        async with state.vcpus:
            if not await guest.runs():
                why = "the VMI is paused: unpause it, and create another checkpoint"
                raise CheckpointError("NotRunning", why)
            self.idle.clear()
            if not self._stops:
                self._cancelled.clear()
            begun = now()
            try:
                state.set_facts(replace(state.facts, saving=True))  # no probe fails
                state.write(msgspec.structs.replace(state.record, stands_still=True))
                work = self._save(guest, files, disks, saved)
                failure = await run_until(self._cancelled, work)
            finally:
                try:
                    await self._go_on(guest)
                finally:
                    ended = now()
                    if state.record.stands_still:
                        self._overdue.set()
                    self.idle.set()
                    self._on_idle()
        if failure is None:
            transient = not self._stops
            why = "the VMI is being stopped, or its QEMU was lost for a moment"
            raise CheckpointError("NotRunning", why, is_transient=transient)
        if failure:
            raise GuestError(failure)
        return ended - begun

    async def _save(
        self, guest: Guest, files: CheckpointFiles, disks: list[Path], saved: int
    ) -> str:
        """Save the guest to a descriptor, and copy its disks; return why that has failed."""
        try:
            async with asyncio.timeout(_STILL_SECONDS):
                await guest.save(saved)
            self._state.step("stands still")
            await finished(asyncio.to_thread(files.copy_disks, disks))
        except TimeoutError:
            return f"the guest is not saved after {_STILL_SECONDS:g} seconds"
        except (GuestError, OSError) as error:
            return describe(error)
        return ""


async def _follow(guest: Guest) -> None:
    """Have the changes of a guest taken, and with them what QEMU reports of a save."""
    async for _ in guest.changes():
        pass


def _disks(folder: Path, vmi: VirtualMachineInstance) -> list[Path]:
    """Return the disks to copy; a fork gets disks for cloud-init of its own."""
    volumes = vmi.spec.volumes
    own = {
        f"{each.name}.iso"
        for each in volumes
        if each.cloud_init_no_cloud is not None or each.cloud_init_config_drive is not None
    }
    present = sorted(folder.iterdir()) if folder.is_dir() else []
    return [each for each in present if each.name not in own]


def _begin(files: CheckpointFiles, disks: list[Path], room: int, memory_bytes: int) -> int:
    """Create the files, if there is room for them; return a descriptor for the saved guest.

    Raises CheckpointError and OSError.
    """
    copied = copied_bytes(disks)
    if copied > MOST_COPIED_BYTES:
        why = f"its disks occupy {copied >> 20} MiB, and at most {MOST_COPIED_BYTES >> 20} MiB"
        raise CheckpointError("DisksTooLarge", f"{why} are copied while the guest stands still")
    files.begin()
    needed = room + memory_bytes + copied + FREE_BYTES
    free = shutil.disk_usage(files.directory).free
    if free < needed:
        why = f"it may take {needed >> 20} MiB, and {free >> 20} MiB are free"
        raise CheckpointError("NoSpace", f"{why} in {files.directory.parent}")
    return files.open_saved(room)
