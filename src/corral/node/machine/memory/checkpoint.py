"""Makes a checkpoint of a running machine; the manager may be killed after each step.

    a second hypervisor waits for the guest, its memory in the file of the checkpoint
    recorded: stands still     the next manager lets the guest go on
    the guest is stopped and sent to it, as in a live migration; its disks are copied
    the guest goes on
    recorded: goes on
    the second hypervisor writes the state of its devices, and is ended
    the record of the checkpoint is written: it is complete

The second hypervisor never runs the guest, and has blank disks in place of the guest's.  What an
interrupted attempt leaves is removed by the next one.
"""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import structlog

from corral.aio import Background, Signal
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.saved_memory import identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import (
    Definition,
    Drive,
    Guest,
    GuestError,
    Hypervisor,
    MemoryMisfitError,
    MigrationOptions,
    Outgoing,
    Pages,
    StartError,
)
from corral.node.images import qcow
from corral.node.machine.drives import DriveError
from corral.node.machine.startup import Prepare
from corral.node.network.attachment import Networking
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState
from corral.node.storage.checkpoint_files import (
    MOST_COPIED_BYTES,
    Checkpoint,
    CheckpointFiles,
    copied_bytes,
)
from corral.node.volumes.source import FOLDER

_SECONDS: Final = 120.0
"""The longest that a checkpoint may take."""
_STUCK_SECONDS: Final = 10.0
"""Time without progress after which the guest goes on: it stands still meanwhile."""
_RETRY_SECONDS: Final = 1.0
"""Time between attempts to let a guest go on."""
_DEVICES_BYTES: Final = 64 << 20
"""Room for the state of devices, with video memory."""
_COPYABLE: Final = (
    "container_disk",
    "empty_disk",
    "cloud_init_no_cloud",
    "cloud_init_config_drive",
    "config_map",
    "secret",
)
"""Sources of volumes that a fork can have a copy of, or makes anew."""


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

    ``idle`` are cleared meanwhile: no other part may stop or save the guest.
    """

    def __init__(
        self,
        state: MachineState,
        hypervisor: Hypervisor,
        networking: Networking,
        idle: tuple[Signal, ...],
    ) -> None:
        self._state = state
        self._networking = networking
        self._hypervisor = hypervisor
        self._idle = idle
        self._overdue = Signal()
        """Set while the guest stands still although no checkpoint is being made."""

    async def make(
        self,
        files: CheckpointFiles,
        guest: Guest,
        vmi: VirtualMachineInstance,
        prepare: Prepare,
    ) -> Checkpoint:
        """Make a checkpoint; the guest goes on.  Raises CheckpointError."""
        if why := next(obstacles(vmi), ""):
            raise CheckpointError("NotSupported", why)
        if not all(each.is_set() for each in self._idle):
            text = "the VMI migrates, is being saved, or another checkpoint of it is made"
            raise CheckpointError("Busy", text, is_transient=True)
        if self._state.record.stands_still:
            text = "the VMI stands still for a checkpoint that was interrupted"
            raise CheckpointError("Busy", text, is_transient=True)
        if self._state.record.stage is not Stage.STARTED or self._state.facts.paused:
            raise CheckpointError("NotRunning", "the VMI does not run, or is paused")
        for each in self._idle:
            each.clear()
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._make(files, guest, vmi, prepare)
        except TimeoutError as error:
            why = f"it is not complete after {_SECONDS:g} seconds"
            raise CheckpointError("TimedOut", why) from error
        except (GuestError, StartError, MemoryMisfitError, DriveError, OSError) as error:
            raise CheckpointError("CheckpointFailed", describe(error)) from error
        finally:
            for each in self._idle:
                each.set()
            self._state.recorder.changed()  # for requests that came meanwhile

    async def keep_going(self, guest: Guest) -> None:
        """Let a guest go on that a checkpoint has left behind standing still, until cancelled.

        It may be that of an earlier manager, or one whose guest did not go on at once.
        """
        if self._state.record.stands_still:
            self._overdue.set()
        while True:
            await self._overdue.wait()
            try:
                await self.go_on(guest)
            except (GuestError, OSError) as error:
                uid = self._state.record.uid
                log.warning("a guest stands still", uid=uid, error=describe(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._overdue.clear()

    async def go_on(self, guest: Guest) -> None:
        """Let a guest go on that stands still for a checkpoint.  Raises GuestError and OSError."""
        if self._state.record.stands_still:
            await guest.stay()
            self._state.write(msgspec.structs.replace(self._state.record, stands_still=False))
            self._state.step("goes on")

    async def _make(
        self,
        files: CheckpointFiles,
        guest: Guest,
        vmi: VirtualMachineInstance,
        prepare: Prepare,
    ) -> Checkpoint:
        await self._hypervisor.end(files.writer)  # that of an attempt which was interrupted
        drives = await prepare()
        _ = await guest.shape()  # fails if devices were plugged in, which a fork would lack
        folder = self._state.directory / FOLDER
        disks = await asyncio.to_thread(_disks, folder, vmi)
        await asyncio.to_thread(_begin, files, disks, guest_memory(vmi.spec.domain).rounded_up())
        stand_ins = await asyncio.to_thread(_blank, drives, files.writer)
        async with self._writer(files, vmi, stand_ins) as writer:
            self._state.step("checkpoint writer started")
            await self._send(guest, writer, vmi, files, disks)
            shape = await writer.shape()
            await _write_devices(writer, files)
        self._state.step("checkpoint written")
        made = Checkpoint(instance=str(vmi.key), identity=identity(vmi), shape=shape)
        return await asyncio.to_thread(files.seal, made)

    @asynccontextmanager
    async def _writer(
        self, files: CheckpointFiles, vmi: VirtualMachineInstance, drives: Mapping[str, Drive]
    ) -> AsyncIterator[Guest]:
        """Start the hypervisor that writes the checkpoint, and end it.

        Its network is that of a target of a migration, which nothing leads to.
        """
        record, owner = self._state.record, files.directory.name
        network = await self._networking.attach(owner, vmi, record.addresses, held=True)
        try:
            writer = await self._hypervisor.start(
                Definition(
                    vmi=vmi,
                    directory=files.writer,
                    drives=drives,
                    network=network,
                    receives=True,
                    machine_type=record.machine_type,
                    pages=Pages(files.memory, shared=True),
                )
            )
            try:
                yield writer
            finally:
                await writer.destroy()
                await writer.release()
        finally:
            self._networking.release(owner)

    async def _send(
        self,
        guest: Guest,
        writer: Guest,
        vmi: VirtualMachineInstance,
        files: CheckpointFiles,
        disks: list[Path],
    ) -> None:
        """Send the guest to the writer, and copy its disks while it stands still."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)  # noqa: FBT003
        state = self._state
        outgoing = Outgoing(
            memory=ours,
            open_disk=_no_disk,
            options=MigrationOptions(progress_seconds=_STUCK_SECONDS),
        )
        failure: GuestError | OSError | None = None  # raised below: a task group would wrap it
        state.set_facts(replace(state.facts, saving=True))  # no probe fails, nobody pauses it
        try:
            if state.facts.paused:  # by a user, while the writer was started
                raise CheckpointError("NotRunning", "the VMI was paused meanwhile")
            state.write(msgspec.structs.replace(state.record, stands_still=True))
            async with Background() as tasks:
                received = tasks.start(_receive(writer, theirs), name="receive")
                try:
                    await guest.send(vmi, outgoing)
                    if (failure := await received) is None:
                        state.step("stands still")
                        await asyncio.to_thread(files.copy_disks, disks)
                except (GuestError, OSError) as error:
                    failure = error
        finally:
            try:
                await self.go_on(guest)
            except (GuestError, OSError):
                self._overdue.set()
                raise
            finally:
                state.set_facts(replace(state.facts, saving=False))
        if failure is not None:
            raise failure


async def _receive(writer: Guest, memory: socket.socket) -> GuestError | None:
    """Receive a guest; return why that has failed."""
    try:
        await writer.receive(memory)
    except GuestError as error:
        return error
    return None


def obstacles(vmi: VirtualMachineInstance) -> Iterator[str]:
    """Iterate over the fields of a VMI that a fork could not have a copy of, each with advice."""
    for index, volume in enumerate(vmi.spec.volumes):
        if not any(getattr(volume, each) is not None for each in _COPYABLE):
            yield (
                f'spec.volumes[{index}]: the disk of volume "{volume.name}" cannot be copied; '
                "checkpoints work with containerDisk, emptyDisk, cloudInitNoCloud,"
                " cloudInitConfigDrive, configMap and secret"
            )
    for index, interface in enumerate(vmi.spec.domain.devices.interfaces):
        if interface.masquerade is None and interface.state != "absent":
            yield (
                f"spec.domain.devices.interfaces[{index}]: forks have the MAC address of their "
                "source, which works with masquerade only"
            )


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


def _begin(files: CheckpointFiles, disks: list[Path], memory_bytes: int) -> None:
    """Create the files, if there is room for them.  Raises CheckpointError and OSError."""
    copied = copied_bytes(disks)
    if copied > MOST_COPIED_BYTES:
        why = f"its disks occupy {copied >> 20} MiB, and at most {MOST_COPIED_BYTES >> 20} MiB"
        raise CheckpointError("DisksTooLarge", f"{why} are copied while the guest stands still")
    files.begin()
    needed = memory_bytes + copied + _DEVICES_BYTES
    free = shutil.disk_usage(files.directory).free
    if free < needed:
        why = f"it may take {needed >> 20} MiB, and {free >> 20} MiB are free"
        raise CheckpointError("NoSpace", f"{why} in {files.directory.parent}")


def _blank(drives: Mapping[str, Drive], folder: Path) -> Mapping[str, Drive]:
    """Return blank disks of the same sizes.  Raises OSError."""
    stand_ins = {}
    for volume, drive in drives.items():
        path = folder / f"{volume}.blank"
        is_raw = drive.format == "raw"
        size = drive.path.stat().st_size if is_raw else qcow.virtual_size(drive.path)
        path.touch(mode=0o600)
        os.truncate(path, size)
        stand_ins[volume] = replace(drive, path=path, format="raw", layers=(), lease="")
    return stand_ins


async def _write_devices(writer: Guest, files: CheckpointFiles) -> None:
    """Write the state of devices.  Raises GuestError and OSError."""

    async def follow() -> None:
        async for _ in writer.changes():
            pass

    failure: GuestError | None = None  # raised below: a task group would wrap it
    descriptor = await asyncio.to_thread(files.open_devices)
    try:
        async with Background() as tasks:
            tasks.start(follow(), name="follow the writer")
            try:
                await writer.save(descriptor, without_pages=True)
            except GuestError as error:
                failure = error
    finally:
        os.close(descriptor)
    if failure is not None:
        raise failure


async def _no_disk(_volume: str) -> NoReturn:
    raise GuestError("the disks of a checkpoint are not sent")
