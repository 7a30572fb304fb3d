"""How a machine goes on from a memory; each step may be the last one of a manager.

    the throw-away disks are linked into the machine's directory
    QEMU has read the memory
    on record: waking       the guest is complete, and has executed nothing
    the seal is broken      from here on this guest is the only one of that memory
    the guest goes on
    on record: started

Where the memory does not fit, or is damaged, the seal is broken too: the guest boots anew, and
would leave its disks in another state than the memory knows.
"""

import asyncio
import shutil
import time
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
from corral.node.state.facts import stillborn
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import Chronicle
from corral.node.storage import StorageError, saved_memory as memories
from corral.node.storage.claim_volumes import NoClaim
from corral.node.storage.saved_memory import SavedMachine, SavedMemory
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.node.volumes.source import FOLDER

_GREETINGS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before a guest's agent is told the time, until it has heard."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory that a machine is to go on from."""

    place: SavedMemory
    saved: SavedMachine
    claim: str

    @property
    def memory(self) -> Memory:
        return Memory(file=self.place.memory, shape=self.saved.shape)

    def check(self, drives: Iterable[Drive]) -> None:
        """Raises MemoryMisfitError where a disk that stayed where it was has been changed."""
        paths = [path for one in drives for path in (one.path, *(it.path for it in one.layers))]
        memories.require_unchanged(self.saved.others, memories.states(paths))


class Restoring:
    """Lets one machine go on from a memory, if it is told of one."""

    def __init__(self, chronicle: Chronicle, saved_memories: SavedMemoryClaims | None) -> None:
        self._chronicle = chronicle
        self._saved_memories = saved_memories
        self._slept = False

    @property
    def _folder(self) -> Path:
        return self._chronicle.directory / FOLDER

    # -- before QEMU is there

    async def find(self, vmi: VirtualMachineInstance) -> Kept | None:
        """The memory that it is to go on from, its disks in place; None where it starts anew.

        Raises StartError where that is not known at present.
        """
        claim = restores_from(vmi)
        if not claim or self._saved_memories is None:
            return None
        try:
            place = await self._saved_memories.find(Key(vmi.metadata.namespace, claim))
        except NoClaim as error:  # its memory is gone with it
            await self._renew()
            self._say("Warning", "RestoreFailed", f"The guest starts anew: {error}")
            return None
        except (ApiError, StorageError) as error:
            why = f"it is to go on from claim {claim}: {error}"
            raise StartError("RestorePending", why) from error
        self._remember(claim)
        if (saved := await asyncio.to_thread(place.read)) is None:
            await self._renew()  # an earlier manager may have begun, and another machine gone on
            self._say(
                "Normal", "NothingToRestore", f"The guest starts anew: claim {claim} is empty."
            )
            return None
        kept = Kept(place, saved, claim)
        try:
            await asyncio.to_thread(place.check, saved)
            await asyncio.to_thread(place.restore_disks, saved, self._folder)
        except MemoryMisfitError as error:
            await self.give_up(kept, str(error))
            return None
        self._chronicle.step("taken out")
        return kept

    def _remember(self, claim: str) -> None:
        """Whose mark is to be looked at when it runs."""
        if self._chronicle.record.claim != claim:
            self._chronicle.write(msgspec.structs.replace(self._chronicle.record, claim=claim))

    async def give_up(self, kept: Kept, why: str) -> None:
        """Start anew instead: with new throw-away disks, and without the memory."""
        record = self._chronicle.record
        if record.stage is Stage.WAKING:  # else the next manager takes it for one that ran
            self._chronicle.write(msgspec.structs.replace(record, stage=Stage.DEFINED))
        await self._renew()
        self._chronicle.step("renewed")
        if await asyncio.to_thread(kept.place.break_seal, self._chronicle.record.uid):
            await asyncio.to_thread(kept.place.clear)
        self._chronicle.step("given up")
        message = f"The guest starts anew, its memory in claim {kept.claim} is of no use: {why}"
        self._say("Warning", "RestoreFailed", message)

    async def _renew(self) -> None:
        """No guest has written to its throw-away disks: they are made anew."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # -- with a guest that has its memory

    async def go_on(self, kept: Kept, guest: Guest, _vmi: VirtualMachineInstance) -> None:
        """Let a new guest go on.  Raises OSError and MemoryMisfitError, with nothing executed."""
        chronicle = self._chronicle
        chronicle.write(
            msgspec.structs.replace(
                chronicle.record,
                stage=Stage.WAKING,
                claim=kept.claim,
                memory=str(kept.place.directory),
                paused=kept.saved.paused,
            )
        )
        chronicle.step("loaded")
        await self._wake(guest)

    def again(self) -> None:
        """QEMU is gone, perhaps before its guest went on: then it can be begun again."""
        record = self._chronicle.record
        if record.stage is Stage.WAKING and SavedMemory(Path(record.memory)).read() is not None:
            self._chronicle.write(msgspec.structs.replace(record, stage=Stage.DEFINED))

    async def take_up(self, guest: Guest) -> None:
        """Let a guest go on that an earlier manager has given its memory.  Raises OSError."""
        try:
            await self._wake(guest)
        except MemoryMisfitError as error:
            self._chronicle.learn(stillborn(self._chronicle.facts, str(error)))
            await self._chronicle.destroy(guest)

    async def _wake(self, guest: Guest) -> None:
        chronicle = self._chronicle
        record = chronicle.record
        place = SavedMemory(Path(record.memory))
        if not await asyncio.to_thread(place.break_seal, record.uid):
            raise MemoryMisfitError("another machine goes on from it")
        chronicle.step("unsealed")
        if not await chronicle.let_run(guest, paused=record.paused):
            return
        self._slept = True
        with suppress(OSError):  # the next manager finds it waking, and awake
            chronicle.write(record.started())
            await asyncio.to_thread(place.clear)
        self._say(
            "Normal", "Restored", f"The guest goes on from its memory in claim {record.claim}."
        )

    def attend(self, tasks: Background, guest: Guest, vmi: VirtualMachineInstance | None) -> None:
        """Beside a guest: tell one that has just gone on what is otherwise by now."""
        if vmi is not None and self._slept:
            self._slept = False
            tasks.start(self._greet(guest, vmi), name="wake")

    async def _greet(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        """One that has the pod's address is made to ask for it: the pod is another one.

        Its clock has stood still; without an agent it asks for the time by itself, sooner or later.
        """
        with suppress(GuestError):
            await guest.replug(vmi)
        for pause in _GREETINGS:
            await asyncio.sleep(pause)
            if self._chronicle.facts.agent_connected:
                with suppress(GuestError):
                    await guest.agent.set_time(time.time())
                    return

    def _say(self, event_type: str, reason: str, message: str) -> None:
        self._chronicle.voice.of_instance(event_type, reason, message)
