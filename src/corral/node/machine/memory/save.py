"""How a machine's memory is saved; each step may be the last one of a manager.

    on record: saving       what is found from here on is looked at: is there a seal?
    the guest is stopped, its memory is written
    sealed                  from here on the guest executes nothing any more
    QEMU is ended
    on record: ended        the claim is marked, and the instance tells that it has succeeded

Until the claim can take the memory, the guest runs on, and whoever wishes may think better of it.
Without a seal it goes on as if nothing had been, and is saved anew, or shut down.
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
from corral.node.state.machine_state import Chronicle
from corral.node.storage import StorageError
from corral.node.storage.saved_memory import SavedMachine, SavedMemory
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.node.volumes.source import FOLDER

SILENT_SECONDS = 3.0
"""So long a claim may take to have a volume before that is told of."""
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0
_DEVICES_BYTES = 32 << 20
"""What the state of devices takes at most, the screen's memory included."""


class Saving:
    """Saves one machine, when it is told to."""

    def __init__(self, chronicle: Chronicle, saved_memories: SavedMemoryClaims | None) -> None:
        self._chronicle = chronicle
        self._saved_memories = saved_memories
        self._claim = ""
        self._give_up: Callable[[], None] = lambda: None
        self._changed = Signal()
        self._is_begun = False
        self.idle = Signal()
        """Set unless it is being saved: what the guest is told meanwhile is lost on it."""
        self.idle.set()

    def wish(self, claim: str, give_up: Callable[[], None] = lambda: None) -> None:
        """Save it to a claim, or not any more where that is none, unless it is being saved already.

        ``give_up`` is called if that fails.
        """
        if claim != self._claim and self.idle.is_set():
            self._claim, self._give_up = claim, give_up
            self._changed.set()

    def recall(self) -> None:
        """An earlier manager may have sealed its memory: then it ends, and has ended well."""
        record = self._chronicle.record
        if record.stage is Stage.SAVING and SavedMemory(Path(record.memory)).read() is not None:
            self._chronicle.learn(saved_facts(self._chronicle.facts))

    def attend(
        self,
        tasks: Background,
        guest: Guest,
        vmi: VirtualMachineInstance | None,
        prepare: Prepare,
    ) -> None:
        """Beside a guest: save it when that is wished, which ends it."""
        self._is_begun = self._chronicle.record.stage is Stage.SAVING
        if self._claim or self._is_begun:
            self._changed.set()
        tasks.whenever(self._changed, self._run, guest, vmi, prepare, name="save")

    async def _run(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        if self._is_begun:
            self._is_begun = False
            await self._take_up(guest)
        while vmi is not None and self._claim and self._chronicle.facts.outcome is None:
            self._changed.clear()
            if (place := await self._place(vmi)) is not None:
                await self._save_to(place, guest, vmi, prepare)

    async def _take_up(self, guest: Guest) -> None:
        """Go on where an earlier manager was killed."""
        self.recall()
        if self._chronicle.facts.outcome is not None:
            await self._chronicle.destroy(guest)
            return
        with suppress(GuestError, OSError):
            await self._go_on(guest)

    async def _save_to(
        self, place: SavedMemory, guest: Guest, vmi: VirtualMachineInstance, prepare: Prepare
    ) -> None:
        self.idle.clear()
        try:
            await self._save(place, guest, vmi, prepare)
        except (GuestError, OSError, DriveError, StorageError, ApiError) as error:
            await self._fail(guest, describe(error))
        finally:
            self.idle.set()

    async def _save(
        self, place: SavedMemory, guest: Guest, vmi: VirtualMachineInstance, prepare: Prepare
    ) -> None:
        chronicle = self._chronicle
        own, others = _sorted(chronicle.directory / FOLDER, (await prepare()).values())
        before = chronicle.record
        saved = SavedMachine(
            volume=place.directory.name,
            identity=identity(vmi),
            instance=str(vmi.key),
            saved_at=time.time(),
            shape=await guest.shape(),
            # What an earlier manager has begun to save stands still for that, not for its user.
            paused=before.paused if before.stage is Stage.SAVING else bool(chronicle.facts.paused),
        )
        # An older memory of it, which nobody went on from, must not be taken for the new one.
        await asyncio.to_thread(place.clear)
        chronicle.write(
            msgspec.structs.replace(
                chronicle.record,
                stage=Stage.SAVING,
                claim=self._claim,
                memory=str(place.directory),
                paused=saved.paused,
            )
        )
        chronicle.learn(replace(chronicle.facts, saving=True))
        chronicle.step("saving")
        chronicle.voice.of_instance(
            "Normal", "Saving", f"Saving the memory of the guest to claim {self._claim}."
        )
        await self._write(guest, place)
        if await guest.shape() != saved.shape:
            raise GuestError("a disk was plugged in or taken out meanwhile")
        chronicle.step("written")
        sealed = await finished(asyncio.to_thread(place.seal, saved, own, others))
        chronicle.step("sealed")
        chronicle.voice.of_instance(
            "Normal",
            "Saved",
            f"Saved the guest to claim {self._claim}: {sealed.memory_bytes >> 20} MiB of memory.",
        )
        chronicle.learn(saved_facts(chronicle.facts))
        await chronicle.destroy(guest)

    async def _place(self, vmi: VirtualMachineInstance) -> SavedMemory | None:
        """Where it is saved to, as soon as there is room for it; None if that is not wished now."""
        key = Key(vmi.metadata.namespace, self._claim)
        loop = asyncio.get_running_loop()
        begun, pause, told = loop.time(), _FIRST_PAUSE_SECONDS, ""
        while not self._changed.is_set():
            try:
                return await self._found(key, vmi)
            except (GuestError, OSError, StorageError, ApiError) as error:
                why = describe(error)
            if why != told and loop.time() - begun >= SILENT_SECONDS:
                message = f"The guest runs on until it can be saved to claim {key.name}: {why}"
                self._chronicle.voice.of_instance("Warning", "SavePending", message)
                told = why
            await wait_at_most(self._changed, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        return None

    async def _found(self, key: Key, vmi: VirtualMachineInstance) -> SavedMemory:
        """Raises GuestError, OSError, StorageError and ApiError, all of which may pass."""
        if self._saved_memories is None:
            raise StorageError("nobody is there to be asked")
        place = await self._saved_memories.find(key)
        _check(place, vmi, self._chronicle.directory)
        return place

    async def _write(self, guest: Guest, place: SavedMemory) -> None:
        descriptor = await asyncio.to_thread(place.open)
        try:
            await guest.save(descriptor)
        finally:
            os.close(descriptor)

    async def _fail(self, guest: Guest, why: str) -> None:
        """It goes on, to be shut down as if nobody had wanted to save it."""
        chronicle = self._chronicle
        self._claim = ""
        chronicle.step("failed")
        chronicle.voice.of_instance(
            "Warning", "SaveFailed", f"The guest cannot be saved, and is shut down: {why}"
        )
        try:
            await self._go_on(guest)
        except (GuestError, OSError):
            # it hangs in between, or there is no room to say that it does not
            await chronicle.destroy(guest)
        self._give_up()

    async def _go_on(self, guest: Guest) -> None:
        chronicle = self._chronicle
        record = chronicle.record
        if record.stage is not Stage.SAVING:
            return
        await guest.give_up_saving()
        await asyncio.to_thread(SavedMemory(Path(record.memory)).clear)
        if not record.paused:
            await guest.resume()
            chronicle.learn(fold(chronicle.facts, Change.RESUMED))
        chronicle.write(record.going_on())
        chronicle.learn(replace(chronicle.facts, saving=False))
        chronicle.step("not saved")


def _check(place: SavedMemory, vmi: VirtualMachineInstance, directory: Path) -> None:
    """Raises GuestError where a machine cannot be saved to a place; OSError."""
    if (kept := place.read()) is not None and kept.identity != identity(vmi):
        raise GuestError(f"the claim holds the memory of {kept.instance}")
    if place.directory.stat().st_dev != directory.stat().st_dev:
        raise GuestError("the claim's volume is on another file system than the machine's disks")
    most = guest_memory(vmi.spec.domain).rounded_up() + _DEVICES_BYTES
    if place.capacity_bytes is not None and place.capacity_bytes < most:
        raise GuestError(f"the claim has {place.capacity_bytes} bytes, and this may take {most}")


def _sorted(folder: Path, drives: Iterable[Drive]) -> tuple[list[Path], list[Path]]:
    """The disks that belong to the machine alone, and those that outlive it."""
    own = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = {path for one in drives for path in (one.path, *(layer.path for layer in one.layers))}
    return own, sorted(path for path in paths if path.parent != folder)
