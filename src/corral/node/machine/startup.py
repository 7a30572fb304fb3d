"""Starts a machine: its network, its drives, QEMU, and the guest's first instruction.

The record says that the guest has been started before it is, so a guest that was once started is
never started again, whenever the manager is killed.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from corral.aio import Signal, wait_at_most
from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL
from corral.api.kinds.vmi.derived import FAILS_AT_START, machine_type
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.fencing.watchdog import FENCED
from corral.node.hypervisor import (
    Definition,
    Drive,
    Guest,
    Hypervisor,
    MemoryMisfitError,
    Network,
    StartError,
)
from corral.node.machine.boot_slots import BootSlots, Slot
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.drives import DriveError
from corral.node.machine.memory.fork import MemoryFork, Origin
from corral.node.machine.memory.restore import MemoryRestore, Restorable
from corral.node.machine.resource_limits import MachineLimits
from corral.node.network.attachment import NO_SANDBOX, Networking, PodReference
from corral.node.state import machine_record as records
from corral.node.state.facts import State, Trouble, start_failed
from corral.node.state.machine_record import Record
from corral.node.state.machine_state import MachineState

FIRST_BACK_OFF_SECONDS = 10.0
LONGEST_BACK_OFF_SECONDS = 300.0
"""A kubelet's back-off when an image cannot be pulled; doubled each time."""
_ERROR_SHOWN_SECONDS = 2.0
"""Time for which the error itself is shown before the reason becomes a back-off."""

Prepare = Callable[[], Awaitable[Mapping[str, Drive]]]
ResumeGuest = Callable[[Guest, VirtualMachineInstance], Awaitable[None]]
"""Starts or resumes a guest's vCPUs.  Raises OSError and MemoryMisfitError."""
Users = Callable[[VirtualMachineInstance, str], str]
"""Names the other VMIs that use the claim behind a volume; empty if none does."""
OnStarted = Callable[[Guest, Slot], None]
"""Takes over a guest that was started, and the slot that it boots in."""


class Startup:
    """Starts one machine; ``started`` gets its guest.

    ``require`` raises StartError if the machine may not run now.
    """

    def __init__(
        self,
        state: MachineState,
        *,
        hypervisor: Hypervisor,
        networking: Networking,
        boot_slots: BootSlots,
        restore: MemoryRestore,
        fork: MemoryFork,
        limits: MachineLimits,
        started: OnStarted,
        users: Users,
        require: Callable[[Record], None],
        leases: MachineLeases,
    ) -> None:
        self._state = state
        self._hypervisor = hypervisor
        self._networking = networking
        self._boot_slots = boot_slots
        self._restore = restore
        self._fork = fork
        self._limits = limits
        self._on_started = started
        self._users = users
        self._require = require
        self._leases = leases
        self._retry = Signal()

    def retry(self) -> None:
        """Retry now: what was missing may be there."""
        self._retry.set()

    async def run(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        """Retry until there is a guest, after growing pauses, or on ``retry`` alone.

        Return without a guest if the VMI is to fail at its start (an annotation for tests).
        """
        pause = FIRST_BACK_OFF_SECONDS
        while True:
            self._retry.clear()
            try:
                await self._attempt(vmi, prepare)
            except DriveError as error:
                await self._back_off_from_drive(error, pause)
            except (StartError, OSError) as error:
                reason = error.reason if isinstance(error, StartError) else "StartFailed"
                why = self._explain(error, vmi)
                self._state.set_trouble(Trouble(reason=reason, message=why))
                recorder = self._state.recorder
                say = recorder.pod_event if reason == NO_SANDBOX else recorder.vmi_event
                say("Warning", reason, why)
                if isinstance(error, StartError) and error.lasting:
                    await self._retry.wait()
                await wait_at_most(self._retry, pause)
            else:
                return
            longer = min(pause * 2, LONGEST_BACK_OFF_SECONDS)
            pause = FIRST_BACK_OFF_SECONDS if self._retry.is_set() else longer

    def _explain(self, error: StartError | OSError, vmi: VirtualMachineInstance) -> str:
        """Describe the error, and who uses the disk if that is why."""
        if isinstance(error, StartError) and error.busy:
            return ": ".join(filter(None, (describe(error), self._users(vmi, error.busy))))
        return describe(error)

    async def _attempt(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        state = self._state
        network = await self._attach_network(vmi)
        if FAILS_AT_START in vmi.metadata.annotations:
            why = f"its annotation {FAILS_AT_START} says so"
            state.set_facts(start_failed(state.facts, why))
            return
        saved = await self._restore.find(vmi)
        origin = await self._fork.find(vmi) if saved is None else None
        drives = await prepare()
        state.step("prepared")
        definition = Definition(vmi=vmi, directory=state.directory, drives=drives, network=network)
        if saved is not None:
            await self._restore_from(saved, definition, prepare)
        elif origin is not None:
            await self._fork_from(origin, definition, prepare)
        else:
            await self._start(definition, self.run_guest)

    async def _restore_from(
        self, saved: Restorable, definition: Definition, prepare: Prepare
    ) -> None:
        try:
            saved.check(definition.drives.values())
            resumed = replace(definition, memory=saved.memory)
            await self._start(resumed, partial(self._restore.resume, saved))
        except MemoryMisfitError as error:
            await self._restore.give_up(saved, describe(error))
            await self._attempt(definition.vmi, prepare)

    async def _fork_from(self, origin: Origin, definition: Definition, prepare: Prepare) -> None:
        try:
            pages = await origin.open_pages()
            try:
                forked = replace(definition, memory=origin.memory, pages=pages)
                await self._start(forked, partial(self._fork.resume, origin))
            finally:
                os.close(pages)
        except MemoryMisfitError as error:
            await self._fork.give_up(origin, error)
            await self._attempt(definition.vmi, prepare)

    async def _attach_network(self, vmi: VirtualMachineInstance) -> Network | None:
        """Record the addresses, and attach the machine to its network."""
        state = self._state
        record = state.record
        pod = PodReference(record.namespace, record.pod, record.pod_uid)
        addresses = await self._networking.addresses(record.id, vmi, pod)
        on_record = (state.directory / records.NAME).exists()
        if addresses != state.record.addresses or not on_record:
            state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            state.write(msgspec.structs.replace(state.record, addresses=addresses))
            state.step("defined")
        network = await self._networking.attach(state.record.id, vmi, addresses)
        state.set_facts(replace(state.facts, addresses=addresses))
        return network

    async def _start(self, definition: Definition, resume: ResumeGuest) -> None:
        state = self._state
        is_spare = WARM_POOL_LABEL in definition.vmi.metadata.labels
        slot = await self._boot_slots.acquire(self._queued, spare=is_spare)
        guest: Guest | None = None
        started = False
        try:
            await self._leases.acquire(state.record.uid, definition.drives.values())
            state.set_facts(replace(state.facts, state=State.STARTING, trouble=None))
            # Of a QEMU that the watchdog ended before its guest was started: it says nothing of
            # how the next one ends.
            (state.directory / FENCED).unlink(missing_ok=True)
            await self._record_launcher(definition.vmi)
            guest = await self._hypervisor.start(definition)
            state.step("spawned")
            await self._limits.apply(guest)
            await self._leases.confirm(state.record.uid)
            # Now that QEMU is there: if this process hangs here, the watchdog ends it in time.
            self._require(state.record)
            state.recorder.vmi_event("Normal", "Created", "VirtualMachineInstance defined.")
            await resume(guest, definition.vmi)
            self._on_started(guest, slot)
            started = True
        except (OSError, MemoryMisfitError, StartError) as error:
            if guest is not None:
                await state.destroy(guest)
                await self._limits.remove()
            # Not when this is cancelled: QEMU may be there, which the next manager adopts.
            await self._leases.release(state.record.uid)
            if not isinstance(error, OSError):
                raise
            raise StartError("StartFailed", describe(error)) from error
        finally:
            if not started:
                slot.release()
                self._limits.release()
                if guest is not None:
                    await guest.release()

    async def _record_launcher(self, vmi: VirtualMachineInstance) -> None:
        """Record what the machine is started in.  Raises OSError and StartError."""
        state = self._state
        launcher = await self._hypervisor.launcher(machine_type(vmi.spec.domain))
        record = msgspec.structs.replace(
            state.record, launcher=launcher.version, machine_type=launcher.machine_type
        )
        if record != state.record:
            state.write(record)

    def _queued(self, slots: int) -> None:
        state = self._state
        state.set_facts(replace(state.facts, state=State.QUEUED, trouble=None))
        state.recorder.vmi_event(
            "Normal", "BootQueued", f"Waits for its turn to boot: {slots} at a time."
        )

    async def run_guest(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        """Record the start, then run the guest's first instruction.  Raises OSError."""
        state = self._state
        state.write(state.record.started())
        state.step("recorded")
        paused = vmi.spec.start_strategy == "Paused"
        if await state.resume_guest(guest, paused=paused) and not paused:
            state.recorder.vmi_event("Normal", "Started", "VirtualMachineInstance started.")

    async def _back_off_from_drive(self, error: DriveError, pause: float) -> None:
        recorder = self._state.recorder
        trouble = Trouble(reason=error.reason, message=error.message, volume=error.volume)
        self._state.set_trouble(trouble)
        if not error.image:
            recorder.pod_event("Warning", error.reason, error.message)
            await wait_at_most(self._retry, pause)
            return
        recorder.pod_event(
            "Warning", "Failed", f'Failed to pull image "{error.image}": {error.message}'
        )
        recorder.pod_event("Warning", "Failed", f"Error: {error.reason}")
        await wait_at_most(self._retry, _ERROR_SHOWN_SECONDS)
        if self._retry.is_set():
            return
        if error.reason == "ErrImagePull":
            message = f'Back-off pulling image "{error.image}"'
            self._state.set_trouble(
                replace(trouble, reason="ImagePullBackOff", message=f"{message}: {error.message}")
            )
            recorder.pod_event("Normal", "BackOff", message)
        await wait_at_most(self._retry, pause - _ERROR_SHOWN_SECONDS)
