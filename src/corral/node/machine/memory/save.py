"""Saves the memory of a machine; the manager may be killed after each step.

    recorded: Saving        the next manager checks for a seal
    the guest is stopped, its memory is written
    sealed                  from here on the guest executes nothing any more
    QEMU is destroyed
    recorded: Ended         the claim is annotated, and the VMI has succeeded

Until the claim can take the memory the guest runs on, and the request can be withdrawn.
Without a seal the guest resumes as if nothing had happened, and is saved again, or shut down.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from corral.aio import Background, Signal, finished, wait_at_most
from corral.api.errors import ApiError
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.saved_memory import identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.hypervisor import Change, Drive, Guest, GuestError
from corral.node.machine.drives import DriveError
from corral.node.machine.startup import Prepare
from corral.node.state.facts import fold, saved as saved_facts
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState
from corral.node.storage import StorageError
from corral.node.storage.saved_memory import SavedMachine, SavedMemory
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.node.volumes.source import FOLDER

PENDING_SECONDS = 3.0
"""Time for which a claim may be unbound before an event reports that."""
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0
_DEVICES_BYTES = 32 << 20
"""The most that the state of devices takes, including video memory."""


class MemorySave:
    """Saves one machine on request."""

    def __init__(self, state: MachineState, saved_memories: SavedMemoryClaims | None) -> None:
        self._state = state
        self._saved_memories = saved_memories
        self._claim = ""
        self._give_up: Callable[[], None] = lambda: None
        self._changed = Signal()
        self._interrupted = False
        self.idle = Signal()
        """Cleared while the guest is being saved: requests to it, such as a shutdown, would be
        lost."""
        self.idle.set()

    def request(self, claim: str, give_up: Callable[[], None] = lambda: None) -> None:
        """Request a save to a claim, or cancel it if empty; ignored once the save has begun.

        ``give_up`` is called if the save fails.
        """
        if claim != self._claim and self.idle.is_set():
            self._claim, self._give_up = claim, give_up
            self._changed.set()

    def check_sealed(self) -> None:
        """Set the outcome to saved if an earlier manager has sealed the memory."""
        record = self._state.record
        if record.stage is Stage.SAVING and SavedMemory(Path(record.memory)).read() is not None:
            self._state.set_facts(saved_facts(self._state.facts))

    def start_tasks(
        self,
        tasks: Background,
        guest: Guest,
        vmi: VirtualMachineInstance | None,
        prepare: Prepare,
    ) -> None:
        """Start the task that saves the guest on request, which ends it."""
        self._interrupted = self._state.record.stage is Stage.SAVING
        if self._claim or self._interrupted:
            self._changed.set()
        tasks.whenever(self._changed, self._run, guest, vmi, prepare, name="save")

    async def _run(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        if self._interrupted:
            self._interrupted = False
            await self._resume_interrupted(guest)
        while vmi is not None and self._claim and self._state.facts.outcome is None:
            self._changed.clear()
            if (place := await self._wait_for_place(vmi)) is not None:
                async with self._state.turn:
                    if not self._changed.is_set() and self._state.facts.outcome is None:
                        await self._save_to(place, guest, vmi, prepare)

    async def _resume_interrupted(self, guest: Guest) -> None:
        """Complete, or cancel, a save during which the manager was killed."""
        self.check_sealed()
        if self._state.facts.outcome is not None:
            await self._state.destroy(guest)
            return
        with suppress(GuestError, OSError):
            await self._cancel(guest)

    async def _save_to(
        self, place: SavedMemory, guest: Guest, vmi: VirtualMachineInstance, prepare: Prepare
    ) -> None:
        self.idle.clear()
        try:
            await self._save(place, guest, vmi, prepare)
        except (GuestError, OSError, DriveError, StorageError, ApiError) as error:
            await self._give_up_saving(guest, describe(error))
        finally:
            self.idle.set()

    async def _save(
        self, place: SavedMemory, guest: Guest, vmi: VirtualMachineInstance, prepare: Prepare
    ) -> None:
        state = self._state
        own, others = _split(state.directory / FOLDER, (await prepare()).values())
        before = state.record
        saved = SavedMachine(
            volume=place.directory.name,
            identity=identity(vmi),
            instance=str(vmi.key),
            saved_at=time.time(),
            shape=await guest.shape(),
            # A guest that an interrupted save has stopped was not paused by its user.
            paused=before.paused if before.stage is Stage.SAVING else bool(state.facts.paused),
        )
        # An older memory in the place, which nobody resumed from, must not be taken for this one.
        await asyncio.to_thread(place.clear)
        state.write(
            msgspec.structs.replace(
                state.record,
                stage=Stage.SAVING,
                claim=self._claim,
                memory=str(place.directory),
                paused=saved.paused,
            )
        )
        state.set_facts(replace(state.facts, saving=True))
        state.step("saving")
        state.recorder.vmi_event(
            "Normal", "Saving", f"Saving the memory of the guest to claim {self._claim}."
        )
        await self._write(guest, place)
        if await guest.shape() != saved.shape:
            raise GuestError("a disk was plugged in or unplugged meanwhile")
        state.step("written")
        sealed = await finished(asyncio.to_thread(place.seal, saved, own, others))
        state.step("sealed")
        state.recorder.vmi_event(
            "Normal",
            "Saved",
            f"Saved the guest to claim {self._claim}: {sealed.memory_bytes >> 20} MiB of memory.",
        )
        state.set_facts(saved_facts(state.facts))
        await state.destroy(guest)

    async def _wait_for_place(self, vmi: VirtualMachineInstance) -> SavedMemory | None:
        """Return the place to save to, once it has room; None if the request has changed."""
        key = Key(vmi.metadata.namespace, self._claim)
        loop = asyncio.get_running_loop()
        begun, pause, reported = loop.time(), _FIRST_PAUSE_SECONDS, ""
        while not self._changed.is_set():
            try:
                return await self._find_place(key, vmi)
            except (GuestError, OSError, StorageError, ApiError) as error:
                why = describe(error)
            if why != reported and loop.time() - begun >= PENDING_SECONDS:
                message = f"The guest runs on until it can be saved to claim {key.name}: {why}"
                self._state.recorder.vmi_event("Warning", "SavePending", message)
                reported = why
            await wait_at_most(self._changed, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        return None

    async def _find_place(self, key: Key, vmi: VirtualMachineInstance) -> SavedMemory:
        """Find the place.

        Raises GuestError, OSError, StorageError and ApiError: all may be transient.
        """
        if self._saved_memories is None:
            raise StorageError("this node has no storage for claims")
        place = await self._saved_memories.find(key)
        _check(place, vmi, self._state.directory)
        return place

    async def _write(self, guest: Guest, place: SavedMemory) -> None:
        descriptor = await asyncio.to_thread(place.open)
        try:
            await guest.save(descriptor)
        finally:
            os.close(descriptor)

    async def _give_up_saving(self, guest: Guest, why: str) -> None:
        """Resume the guest, and give up, which shuts it down."""
        state = self._state
        self._claim = ""
        state.step("failed")
        state.recorder.vmi_event(
            "Warning", "SaveFailed", f"The guest cannot be saved, and is shut down: {why}"
        )
        try:
            await self._cancel(guest)
        except (GuestError, OSError):
            # it hangs half-way, or the record cannot be written
            await state.destroy(guest)
        self._give_up()

    async def _cancel(self, guest: Guest) -> None:
        state = self._state
        record = state.record
        if record.stage is not Stage.SAVING:
            return
        await guest.cancel_save()
        await asyncio.to_thread(SavedMemory(Path(record.memory)).clear)
        if not record.paused:
            await guest.resume()
            state.set_facts(fold(state.facts, Change.RESUMED))
        state.write(record.save_cancelled())
        state.set_facts(replace(state.facts, saving=False))
        state.step("not saved")


def _check(place: SavedMemory, vmi: VirtualMachineInstance, directory: Path) -> None:
    """Raise GuestError if a machine cannot be saved to a place.  Raises OSError."""
    if (present := place.read()) is not None and present.identity != identity(vmi):
        raise GuestError(f"the claim holds the memory of {present.instance}")
    if place.directory.stat().st_dev != directory.stat().st_dev:
        raise GuestError("the claim's volume is on another file system than the machine's disks")
    most = guest_memory(vmi.spec.domain).rounded_up() + _DEVICES_BYTES
    if place.capacity_bytes is not None and place.capacity_bytes < most:
        raise GuestError(f"the claim has {place.capacity_bytes} bytes, and this may take {most}")


def _split(folder: Path, drives: Iterable[Drive]) -> tuple[list[Path], list[Path]]:
    """Return the disks that are saved with the machine, and those that outlive it."""
    own = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = {path for one in drives for path in (one.path, *(layer.path for layer in one.layers))}
    return own, sorted(path for path in paths if path.parent != folder)
