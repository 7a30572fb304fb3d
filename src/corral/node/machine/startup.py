"""How a machine comes up: its network, its drives, QEMU, and the guest's first instruction.

The record says that the guest has been started before it is: so a guest that was once started is
never started again, whenever the manager is killed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from corral.aio import Signal, wait_at_most
from corral.api.kinds.vmi.derived import FAILS_AT_START
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import (
    Definition,
    Drive,
    Guest,
    Hypervisor,
    MemoryMisfitError,
    Network,
    StartError,
)
from corral.node.machine.boot_slots import Boots, Slot
from corral.node.machine.drives import DriveError
from corral.node.machine.memory.restore import Restoring
from corral.node.machine.resource_limits import Fence
from corral.node.network.attachment import NO_SANDBOX, Networking
from corral.node.state import machine_record as records
from corral.node.state.facts import State, Trouble, stillborn
from corral.node.state.machine_state import Chronicle

FIRST_BACK_OFF_SECONDS = 10.0
LONGEST_BACK_OFF_SECONDS = 300.0
"""A kubelet's back-off when an image cannot be pulled; doubled each time."""
_ERROR_SHOWN_SECONDS = 2.0
"""How long the error itself is shown before the state is called a back-off."""

Prepare = Callable[[], Awaitable[Mapping[str, Drive]]]
Begin = Callable[[Guest, VirtualMachineInstance], Awaitable[None]]
"""Lets a guest execute its first instruction.  Raises OSError and MemoryMisfitError."""
Users = Callable[[VirtualMachineInstance, str], str]
"""Who else has what a volume shows, in words; empty where that is nobody."""
Born = Callable[[Guest, Slot], None]
"""Takes a guest over, and the slot that it boots in."""


class Starting:
    """Brings one machine up; ``born`` gets what came of it."""

    def __init__(
        self,
        chronicle: Chronicle,
        *,
        hypervisor: Hypervisor,
        networking: Networking,
        boots: Boots,
        restoring: Restoring,
        fence: Fence,
        born: Born,
        users: Users,
    ) -> None:
        self._chronicle = chronicle
        self._hypervisor = hypervisor
        self._networking = networking
        self._boots = boots
        self._restoring = restoring
        self._fence = fence
        self._born = born
        self._users = users
        self._news = Signal()

    def retry(self) -> None:
        """What was missing may be there now: rest no longer."""
        self._news.set()

    async def run(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        """Try until there is a guest: after growing pauses, or at news where those help nobody.

        There is none of a machine that is to fail at its start.
        """
        pause = FIRST_BACK_OFF_SECONDS
        while True:
            self._news.clear()
            try:
                await self._attempt(vmi, prepare)
            except DriveError as error:
                await self._back_off_from_drive(error, pause)
            except (StartError, OSError) as error:
                reason = error.reason if isinstance(error, StartError) else "StartFailed"
                why = self._explained(error, vmi)
                self._chronicle.trouble(Trouble(reason=reason, message=why))
                voice = self._chronicle.voice
                say = voice.of_pod if reason == NO_SANDBOX else voice.of_instance
                say("Warning", reason, why)
                if isinstance(error, StartError) and error.lasting:
                    await self._news.wait()
                await wait_at_most(self._news, pause)
            else:
                return
            longer = min(pause * 2, LONGEST_BACK_OFF_SECONDS)
            pause = FIRST_BACK_OFF_SECONDS if self._news.is_set() else longer

    def _explained(self, error: StartError | OSError, vmi: VirtualMachineInstance) -> str:
        """What is wrong, and who has the disk that is missing, where it is that."""
        if isinstance(error, StartError) and error.busy:
            return ": ".join(filter(None, (describe(error), self._users(vmi, error.busy))))
        return describe(error)

    async def _attempt(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        chronicle = self._chronicle
        network = await self._join(vmi)
        if FAILS_AT_START in vmi.metadata.annotations:
            why = f"its annotation {FAILS_AT_START} says so"
            chronicle.learn(stillborn(chronicle.facts, why))
            return
        kept = await self._restoring.find(vmi)
        drives = await prepare()
        chronicle.step("prepared")
        definition = Definition(
            vmi=vmi, directory=chronicle.directory, drives=drives, network=network
        )
        if kept is None:
            await self._start(definition, self.let_go)
            return
        try:
            kept.check(drives.values())
            definition = replace(definition, memory=kept.memory)
            await self._start(definition, partial(self._restoring.go_on, kept))
        except MemoryMisfitError as error:
            await self._restoring.give_up(kept, describe(error))
            await self._attempt(vmi, prepare)

    async def _join(self, vmi: VirtualMachineInstance) -> Network | None:
        """Its addresses are on record before anything has them."""
        chronicle = self._chronicle
        addresses = await self._networking.addresses(vmi)
        on_record = (chronicle.directory / records.NAME).exists()
        if addresses != chronicle.record.addresses or not on_record:
            chronicle.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            chronicle.write(msgspec.structs.replace(chronicle.record, addresses=addresses))
            chronicle.step("defined")
        network = await self._networking.attach(vmi, addresses)
        chronicle.learn(replace(chronicle.facts, addresses=addresses))
        return network

    async def _start(self, definition: Definition, begin: Begin) -> None:
        chronicle = self._chronicle
        slot = await self._boots.take(self._queued)
        guest: Guest | None = None
        born = False
        try:
            chronicle.learn(replace(chronicle.facts, state=State.STARTING, trouble=None))
            guest = await self._hypervisor.start(definition)
            chronicle.step("spawned")
            await self._fence.put_up(guest)
            chronicle.voice.of_instance("Normal", "Created", "VirtualMachineInstance defined.")
            await begin(guest, definition.vmi)
            self._born(guest, slot)
            born = True
        except (OSError, MemoryMisfitError, StartError) as error:
            if guest is not None:
                await chronicle.destroy(guest)
                await self._fence.take_down()
            if not isinstance(error, OSError):
                raise
            raise StartError("StartFailed", describe(error)) from error
        finally:
            if not born:
                slot.give_back()
                self._fence.release()
                if guest is not None:
                    await guest.release()

    def _queued(self, slots: int) -> None:
        chronicle = self._chronicle
        chronicle.learn(replace(chronicle.facts, state=State.QUEUED, trouble=None))
        chronicle.voice.of_instance(
            "Normal", "BootQueued", f"Waits for its turn to boot: {slots} at a time."
        )

    async def let_go(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        """The guest's first instruction, after the record says so.  Raises OSError."""
        chronicle = self._chronicle
        chronicle.write(chronicle.record.started())
        chronicle.step("recorded")
        paused = vmi.spec.start_strategy == "Paused"
        if await chronicle.let_run(guest, paused=paused) and not paused:
            chronicle.voice.of_instance("Normal", "Started", "VirtualMachineInstance started.")

    async def _back_off_from_drive(self, error: DriveError, pause: float) -> None:
        voice = self._chronicle.voice
        trouble = Trouble(reason=error.reason, message=error.message, volume=error.volume)
        self._chronicle.trouble(trouble)
        if not error.image:
            voice.of_pod("Warning", error.reason, error.message)
            await wait_at_most(self._news, pause)
            return
        voice.of_pod("Warning", "Failed", f'Failed to pull image "{error.image}": {error.message}')
        voice.of_pod("Warning", "Failed", f"Error: {error.reason}")
        await wait_at_most(self._news, _ERROR_SHOWN_SECONDS)
        if self._news.is_set():
            return
        if error.reason == "ErrImagePull":
            message = f'Back-off pulling image "{error.image}"'
            self._chronicle.trouble(
                replace(trouble, reason="ImagePullBackOff", message=f"{message}: {error.message}")
            )
            voice.of_pod("Normal", "BackOff", message)
        await wait_at_most(self._news, pause - _ERROR_SHOWN_SECONDS)
