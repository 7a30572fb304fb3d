"""Receives the guest of a machine from another node; the manager may be killed after each step.

    recorded: Defined       the pod runs; where the guest comes from is not known yet
    QEMU waits for a guest
    recorded: Receiving     the source may send: it runs the guest meanwhile
    the source's QEMU has stopped the guest
    the pod's address leads here
    QEMU has all of it
    recorded: Arriving      the source has handed the guest over (``handover``)
    the guest runs
    recorded: Started

A manager that finds Receiving ends the machine, unless QEMU has all of the guest: then the source
may have handed it over.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import structlog

from corral.aio import Signal, finished, run_until
from corral.api.kinds.corral.spare_state import is_paused_spare
from corral.api.kinds.vmi.derived import machine_type
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.hypervisor import Definition, Drive, Guest, GuestError, Hypervisor, StartError
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.drives import DriveError
from corral.node.machine.migration.handover import TargetStep, target_step
from corral.node.machine.migration.targets import LocalTarget, MigrationTargets
from corral.node.machine.resource_limits import MachineLimits
from corral.node.machine.startup import Prepare
from corral.node.network.attachment import Networking
from corral.node.state.facts import Migration, Progress, not_received
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import MachineState
from corral.node.volumes.source import FOLDER

STOPPED = "it was stopped"
_RETRY_SECONDS = 1.0

log = structlog.get_logger()


class Arrival:
    """Receives one machine's guest; ``arrived`` gets it once it runs."""

    def __init__(
        self,
        state: MachineState,
        *,
        hypervisor: Hypervisor,
        networking: Networking,
        targets: MigrationTargets,
        limits: MachineLimits,
        leases: MachineLeases,
        arrived: Callable[[Guest], None],
        require: Callable[[Record], None],
    ) -> None:
        self._state = state
        self._hypervisor = hypervisor
        self._networking = networking
        self._targets = targets
        self._limits = limits
        self._leases = leases
        self._on_arrived = arrived
        self._require = require
        self._vmi: VirtualMachineInstance | None = None
        self._addresses: Sequence[str] = ()
        self.source = ""
        """The source's node; empty until it is known."""
        self._drives: Mapping[str, Drive] | None = None
        self._prepare_drives: Prepare | None = None
        """Prepares the drives once more, of a guest that an earlier manager has received."""
        self._arranged = Signal()
        self._ended = Signal()
        self._failure = ""
        self._target: LocalTarget | None = None
        self._has_arrived = False

    @property
    def _is_over(self) -> bool:
        """Report whether it has nothing to receive (any more)."""
        return self._state.record.stage not in {Stage.DEFINED, Stage.RECEIVING}

    @property
    def awaits_addresses(self) -> bool:
        """Report whether it does not know yet which pod's addresses it takes over, and where."""
        return not self._arranged.is_set() and not self._is_over

    def arrange(self, vmi: VirtualMachineInstance, addresses: Sequence[str], source: str) -> None:
        """Set the addresses of the source's pod, which the guest keeps, and the source's node.

        vmi: as it was handed over, with the size that the guest has had since its pod was created.
        """
        self._vmi, self._addresses, self.source = vmi, addresses, source
        self._arranged.set()

    def end(self, why: str) -> None:
        """End it, unless the guest is its own: the migration has failed."""
        if not self._is_over and (self._target is None or not self._target.run_requested):
            self._failure = self._failure or why
            self._ended.set()

    def mark_reported(self) -> None:
        """Record that the API shows the guest here."""
        if self._target is not None:
            self._target.is_reported = True
            self._target.notify()
            self._targets.remove(self._state.record.arrival)

    async def run(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        """Receive the guest; without one, the outcome is set."""
        await self._until_ended(self._run(vmi, prepare))

    async def resume(self, guest: Guest, prepare: Prepare) -> None:
        """Go on with a QEMU that an earlier manager has started."""
        self._prepare_drives = prepare
        if self._state.record.stage is Stage.ARRIVING:
            await self._run_guest(guest, paused=self._state.record.paused)
        elif guest.received:
            await self._until_ended(self._offer(guest, ()))
        else:
            self._failure = "the agent of the target node was restarted"
            await self._give_back()
            await self._fail()

    async def _until_ended(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that receives the guest, unless it is to end; without a guest, it fails."""
        try:
            await run_until(self._ended, work)
            if self._target is not None and not self._is_over:
                await self._target.give_up(self._failure or STOPPED)
        finally:
            self._retract()
        if not self._is_over:
            await self._fail()

    async def _run(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        guest: Guest | None = None
        try:
            self._state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._state.write(self._state.record)
            self._state.step("defined")
            await self._arranged.wait()
            guest, copied = await self._prepare(self._vmi or vmi, prepare)
            await self._offer(guest, copied)
        except (DriveError, StartError, GuestError, OSError) as error:
            self._failure = self._failure or _describe(error)
        finally:
            if guest is not None and not self._has_arrived:
                await guest.release()

    async def _prepare(
        self, vmi: VirtualMachineInstance, prepare: Prepare
    ) -> tuple[Guest, Sequence[str]]:
        """Start a QEMU that waits for the guest, in a network that nothing leads to yet.

        Return it with the volumes whose disks are copied.
        """
        state = self._state
        owner = state.record.id
        addresses = self._networking.keep(owner, self._addresses)
        launcher = await self._hypervisor.launcher(machine_type(vmi.spec.domain))
        received = vmi.status.machine.type if vmi.status.machine is not None else ""
        state.write(
            msgspec.structs.replace(
                state.record,
                addresses=addresses,
                launcher=launcher.version,
                machine_type=received or launcher.machine_type,
            )
        )
        network = await self._networking.attach(owner, vmi, addresses, held=True)
        folder = state.directory / FOLDER
        await self._targets.copy_files(state.record.arrival, vmi, self.source, folder)
        drives = self._drives = await prepare()
        state.step("prepared")
        copied = [name for name, drive in drives.items() if drive.ephemeral and not drive.read_only]
        definition = Definition(
            vmi=vmi,
            directory=state.directory,
            drives=drives,
            network=network,
            receives=True,
            machine_type=received,
        )
        if self._targets.is_own(self.source):
            await self._leases.acquire(state.record.uid, drives.values())
        guest = await self._hypervisor.start(definition)
        try:
            state.step("spawned")
            await self._limits.apply(guest)
            self._require(state.record)
            await guest.offer_disks(vmi, copied)
        except BaseException:
            await state.destroy(guest)
            await guest.release()
            raise
        return guest, copied

    async def _offer(self, guest: Guest, disks: Sequence[str]) -> None:
        """Register as a target, and obey the source until it has decided."""
        state = self._state
        if state.record.stage is not Stage.RECEIVING:
            state.write(msgspec.structs.replace(state.record, stage=Stage.RECEIVING))
        vmi = Key(state.record.namespace, state.record.instance)
        take_over = partial(self._networking.take_over, state.record.id)
        target = self._target = LocalTarget(
            guest,
            disks,
            vmi,
            state.record.uid,
            take_over=take_over,
            give_back=self._give_back,
        )
        self._targets.add(state.record.arrival, target)
        self._report(Progress.PREPARED)
        state.step("receiving")
        if not target.is_complete:
            await self._receive(guest, target)
        while (step := self._next(target)) is TargetStep.WAIT:
            target.changed.clear()
            await target.changed.wait()
        if step is TargetStep.RUN:
            await self._run_guest(guest, paused=target.paused)
        else:
            self._failure = target.failure

    async def _give_back(self) -> None:
        record = self._state.record
        await self._networking.give_back(record.id, record.addresses)

    async def _receive(self, guest: Guest, target: LocalTarget) -> None:
        await target.memory_opened.wait()
        assert target.memory is not None
        await guest.receive(target.memory, target.sender)
        target.is_complete = True
        self._state.step("received")
        target.notify()

    def _next(self, target: LocalTarget) -> TargetStep:
        return target_step(
            self._state.record.stage,
            complete=target.is_complete,
            run_requested=target.run_requested,
            cancelled=bool(target.failure),
        )

    async def _run_guest(self, guest: Guest, *, paused: bool) -> None:
        """Run the guest here.  Raises OSError if that cannot be recorded.

        Only while it waits for the leases can it be stopped: the guest stands still.
        """
        state = self._state
        state.write(msgspec.structs.replace(state.record, stage=Stage.ARRIVING, paused=paused))
        if paused and self._vmi is not None and is_paused_spare(self._vmi):
            state.record_spare_pause(paused=True)
        state.step("arriving")
        await self._take_leases()
        await finished(self._resume_guest(guest, paused=paused))

    async def _resume_guest(self, guest: Guest, *, paused: bool) -> None:
        """Run the guest, and notify the source, which waits for that.

        The addresses lead here already, unless a manager was restarted since.
        """
        state = self._state
        await self._networking.take_over(state.record.id)
        if await state.resume_guest(guest, paused=paused):
            state.write(state.record.started())
        # Not before: the guest would stand still while the API is written.
        state.set_facts(replace(state.facts, addresses=state.record.addresses))
        self._report(Progress.ARRIVED)
        self._has_arrived = True
        self._on_arrived(guest)
        if self._target is not None:
            self._target.is_running = True
            self._target.notify()

    async def _take_leases(self) -> None:
        """Take the leases of the disks over from the source's host, which runs nothing any more.

        Until then the guest stands still: without them another machine might have its disks.
        """
        while True:
            try:
                if self._drives is None and self._prepare_drives is not None:
                    self._drives = await self._prepare_drives()
                drives = (self._drives or {}).values()
                await self._leases.take_over(self._state.record.uid, drives)
            except (DriveError, StartError) as error:
                log.warning("leases not taken over yet", error=_describe(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _report(self, progress: Progress) -> None:
        state = self._state
        migration = Migration(uid=state.record.arrival, progress=progress)
        state.set_facts(replace(state.facts, migration=migration))

    def _retract(self) -> None:
        """Report to the source that the guest will not run here; nothing if it might have."""
        if self._has_arrived:
            return
        self._targets.remove(self._state.record.arrival)
        if self._target is not None and self._is_over:
            self._target.leave()
        elif self._target is not None:
            self._target.fail(self._failure or STOPPED)

    async def _fail(self) -> None:
        state = self._state
        state.record_outcome(not_received(state.facts, self._failure or STOPPED))
        await self._hypervisor.end(state.directory)


def _describe(error: Exception) -> str:
    return error.message if isinstance(error, DriveError) else describe(error)
