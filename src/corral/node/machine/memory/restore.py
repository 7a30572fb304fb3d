"""Resumes a machine from a saved memory; the manager may be killed after each step.

    the ephemeral disks are linked into the machine's directory
    QEMU has read the memory
    recorded: Waking        the guest is complete, and has executed nothing
    the seal is broken      from here on only this guest may use that memory
    the guest resumes
    recorded: Started

If the memory does not fit, or is damaged, the seal is broken, too: the guest boots anew, and
changes its disks, which then no longer match the memory.
"""

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.kinds.vmi.saved_memory import restores_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hypervisor import (
    Drive,
    Guest,
    GuestError,
    Memory,
    MemoryMisfitError,
    StartError,
)
from corral.node.machine.clock import set_clock
from corral.node.state.facts import start_failed
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState
from corral.node.storage import StorageError, saved_memory as memories
from corral.node.storage.claim_volumes import NoClaim
from corral.node.storage.saved_memory import SavedMachine, SavedMemory
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.node.volumes.source import FOLDER

_SET_TIME_RETRY_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before attempts to set the guest's clock, until its agent is connected."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """A saved memory that a machine is to resume from."""

    place: SavedMemory
    saved: SavedMachine
    claim: str

    @property
    def memory(self) -> Memory:
        return Memory(file=self.place.memory, shape=self.saved.shape)

    def check(self, drives: Iterable[Drive]) -> None:
        """Raise MemoryMisfitError if a disk that was not saved along has changed."""
        paths = [path for one in drives for path in (one.path, *(it.path for it in one.layers))]
        memories.require_unchanged(self.saved.others, memories.states(paths))


class MemoryRestore:
    """Resumes one machine from a saved memory, if its VMI names one."""

    def __init__(self, state: MachineState, saved_memories: SavedMemoryClaims | None) -> None:
        self._state = state
        self._saved_memories = saved_memories
        self._resumed = False

    @property
    def _folder(self) -> Path:
        return self._state.directory / FOLDER

    # -- before QEMU is started

    async def find(self, vmi: VirtualMachineInstance) -> Restorable | None:
        """Return the memory to resume from, with its disks in place; None for a new start.

        Raises StartError if that is not known at present.
        """
        claim = restores_from(vmi)
        if not claim or self._saved_memories is None:
            return None
        try:
            place = await self._saved_memories.find(Key(vmi.metadata.namespace, claim))
        except NoClaim as error:  # its memory is gone, too
            await self._discard_disks()
            self._event("Warning", "RestoreFailed", f"The guest boots anew: {error}")
            return None
        except (ApiError, StorageError) as error:
            why = f"it is to resume from claim {claim}: {error}"
            raise StartError("RestorePending", why) from error
        self._record_claim(claim)
        if (saved := await asyncio.to_thread(place.read)) is None:
            await (
                self._discard_disks()
            )  # an earlier manager may have taken it, and another machine resumed
            self._event(
                "Normal", "NothingToRestore", f"The guest boots anew: claim {claim} is empty."
            )
            return None
        restorable = Restorable(place, saved, claim)
        try:
            await asyncio.to_thread(place.check, saved)
            await asyncio.to_thread(place.restore_disks, saved, self._folder)
        except MemoryMisfitError as error:
            await self.give_up(restorable, str(error))
            return None
        self._state.step("taken out")
        return restorable

    def _record_claim(self, claim: str) -> None:
        """Record the claim, whose annotation is removed once the machine runs."""
        if self._state.record.claim != claim:
            self._state.write(msgspec.structs.replace(self._state.record, claim=claim))

    async def give_up(self, restorable: Restorable, why: str) -> None:
        """Boot anew instead: with new ephemeral disks, and without the memory."""
        record = self._state.record
        if record.stage is Stage.WAKING:  # else the next manager takes it for one that has run
            self._state.write(msgspec.structs.replace(record, stage=Stage.DEFINED))
        await self._discard_disks()
        self._state.step("renewed")
        if await asyncio.to_thread(restorable.place.break_seal, self._state.record.uid):
            await asyncio.to_thread(restorable.place.clear)
        self._state.step("given up")
        message = f"The guest boots anew, its memory in claim {restorable.claim} is unusable: {why}"
        self._event("Warning", "RestoreFailed", message)

    async def _discard_disks(self) -> None:
        """Remove the saved ephemeral disks, which no guest has written to yet."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # -- with a guest that has read its memory

    async def resume(
        self, restorable: Restorable, guest: Guest, _vmi: VirtualMachineInstance
    ) -> None:
        """Resume a new guest.  Raises OSError and MemoryMisfitError, with nothing executed."""
        state = self._state
        state.write(
            msgspec.structs.replace(
                state.record,
                stage=Stage.WAKING,
                claim=restorable.claim,
                memory=str(restorable.place.directory),
                paused=restorable.saved.paused,
            )
        )
        state.step("loaded")
        await self._unseal_and_run(guest)

    def reset_interrupted(self) -> None:
        """Allow a new attempt if QEMU has ended before the seal was broken."""
        record = self._state.record
        if record.stage is Stage.WAKING and SavedMemory(Path(record.memory)).read() is not None:
            self._state.write(msgspec.structs.replace(record, stage=Stage.DEFINED))

    async def resume_interrupted(self, guest: Guest) -> None:
        """Resume a guest whose memory an earlier manager has loaded.  Raises OSError."""
        try:
            await self._unseal_and_run(guest)
        except MemoryMisfitError as error:
            self._state.set_facts(start_failed(self._state.facts, str(error)))
            await self._state.destroy(guest)

    async def _unseal_and_run(self, guest: Guest) -> None:
        state = self._state
        record = state.record
        place = SavedMemory(Path(record.memory))
        if not await asyncio.to_thread(place.break_seal, record.uid):
            raise MemoryMisfitError("another machine resumes from it")
        state.step("unsealed")
        if not await state.resume_guest(guest, paused=record.paused):
            return
        self._resumed = True
        with suppress(OSError):  # the next manager finds the stage Waking, and a guest that runs
            state.write(record.started())
            await asyncio.to_thread(place.clear)
        self._event(
            "Normal", "Restored", f"The guest resumed from its memory in claim {record.claim}."
        )

    def start_tasks(
        self, tasks: Background, guest: Guest, vmi: VirtualMachineInstance | None
    ) -> None:
        """Start the task that updates a guest that has just resumed."""
        if vmi is not None and self._resumed:
            self._resumed = False
            tasks.start(self._update_guest(guest, vmi), name="wake")

    async def _update_guest(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        """Have the guest renew its lease, as its pod is another one, and set its clock.

        Without an agent the guest corrects its clock by itself (NTP), sooner or later.
        """
        with suppress(GuestError):
            await guest.replug(vmi)
        for pause in _SET_TIME_RETRY_SECONDS:
            await asyncio.sleep(pause)
            if self._state.facts.agent_connected and await set_clock(guest.agent):
                return

    def _event(self, event_type: str, reason: str, message: str) -> None:
        self._state.recorder.vmi_event(event_type, reason, message)
