"""Sends the guest of a machine to another node; the manager may be killed after each step.

    recorded: Sending       the guest runs here; its memory and disks are copied meanwhile
    QEMU stops the guest    the pod's address leads to the target, where packets wait for the guest
    QEMU has sent all
    the target is complete
    recorded: Sent          from here on the guest is the target's (``handover``)
    the target runs the guest, and the API shows that
    QEMU is destroyed
    recorded: Ended

A manager that finds Sending cancels the migration: the guest runs on.  Whatever the reason, a guest
that stays has its address led back first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
import structlog

from corral.aio import Background, Signal, run_until, wait_at_most
from corral.api.kinds.vmi.derived import target_pod_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.hypervisor import (
    Guest,
    GuestError,
    MigrationOptions,
    NoAnswerError,
    Outgoing,
    StartError,
)
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.drives import DriveError
from corral.node.machine.migration.handover import SourceStep, TargetState, source_step
from corral.node.machine.migration.targets import MigrationTarget
from corral.node.machine.startup import Prepare
from corral.node.network.attachment import Networking
from corral.node.state.facts import INTERRUPTED, Migration, Progress, lost, migrated
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState

MIGRATED = "Migrated"
"""Reason of KubeVirt's events about the end of a migration."""
CANCELLED = "Live migration aborted"
"""Reason of the failure of a cancelled migration (KubeVirt's failureReason)."""
HANDED_OVER = "handed over"
"""The step of a source after which the target is certain to run the guest."""
COMPLETE_SECONDS = 30.0
"""Longest wait for a target that was sent the whole guest, which stands still meanwhile."""
_RETRY_SECONDS = 1.0

ConnectTarget = Callable[[str, str], Awaitable[MigrationTarget]]
"""Returns the target of a migration, by its uid and node.  Raises NoAnswerError."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRequest:
    """A requested migration: its uid, its target's node, and its settings."""

    uid: str
    node: str
    options: MigrationOptions


class Departure:
    """Sends one machine's guest on request."""

    def __init__(
        self,
        state: MachineState,
        connect_target: ConnectTarget,
        networking: Networking,
        leases: MachineLeases,
    ) -> None:
        self._state = state
        self._connect_target = connect_target
        self._networking = networking
        self._leases = leases
        self._request: MigrationRequest | None = None
        self._requested = Signal()
        self._stopped = Signal()
        """Set when QEMU has stopped the guest to send the rest of it."""
        self._stays = False
        self._cancelled = Signal()
        self._recheck = Signal()
        self._observed = TargetState.UNKNOWN
        self._target: MigrationTarget | None = None
        """The target that is reached, until the guest stays or is handed over."""
        self._run_may_be_requested = True
        """True if it may have got the request to run the guest, also from an earlier manager."""
        self.idle = Signal(is_set=True)
        """Cleared while the guest may be stopped, so that requests to it would be lost."""

    def request(self, request: MigrationRequest) -> None:
        """Migrate, unless this migration has been run, or another one is."""
        if request.uid != self._state.record.departure and self.idle.is_set():
            self._request = request
            self._requested.set()

    def cancel(self) -> None:
        """Cancel the migration, unless the guest has been handed over."""
        self._cancelled.set()

    def observe(self, target: TargetState) -> None:
        """Set the state of the target by the API, which counts while it does not answer itself.

        ABSENT: it has ended without the guest; GONE: its pod has ended, or is gone; RUNNING: the
        VMI's status shows the guest there.
        """
        if target is not self._observed:
            self._observed = target
            self._recheck.set()

    def start_tasks(
        self,
        tasks: Background,
        guest: Guest,
        vmi: VirtualMachineInstance | None,
        prepare: Prepare,
    ) -> None:
        """Start the task that sends the guest on request, which ends it here.

        ``prepare`` returns the drives of the guest once more.
        """
        if self._state.record.stage is Stage.SENDING:
            tasks.start(self._stay(guest, None, INTERRUPTED), name="cancel migration")
        if self._state.record.stage is Stage.SENT:
            self._requested.set()
        tasks.whenever(self._requested, self._run, guest, vmi, prepare, name="migrate")
        if vmi is not None:
            tasks.whenever(self._stopped, self._lead, vmi, name="lead addresses")

    async def _run(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        if self._state.facts.outcome is not None:
            return
        async with self._state.turn:
            await self._run_alone(guest, vmi, prepare)

    async def _run_alone(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        self.idle.clear()
        try:
            is_sent = self._state.record.stage is Stage.SENT
            if not is_sent and vmi is not None and self._request is not None:
                is_sent = await self._migrate(guest, vmi, self._request)
            if is_sent:
                await self._hand_over(guest, vmi, prepare)
        finally:
            if self._target is not None:
                self._target.release()
                self._target = None
            self.idle.set()

    async def _migrate(
        self, guest: Guest, vmi: VirtualMachineInstance, request: MigrationRequest
    ) -> bool:
        """Send the guest until the target has it; return whether it is the target's now."""
        state = self._state
        self._stays = False
        self._cancelled.clear()
        self._observed = TargetState.UNKNOWN
        paused = bool(state.facts.paused)
        state.write(
            msgspec.structs.replace(
                state.record,
                stage=Stage.SENDING,
                departure=request.uid,
                departure_node=request.node,
                paused=paused,
            )
        )
        state.set_facts(
            replace(state.facts, migration=Migration(uid=request.uid, progress=Progress.SENDING))
        )
        state.step("sending")
        state.recorder.vmi_event("Normal", "Migrating", "VirtualMachineInstance is migrating.")
        sending = await run_until(self._cancelled, self._send(guest, vmi, request))
        failure = CANCELLED if sending is None else sending
        target = self._target
        target_state = TargetState.ABSENT if target is None else await target.state()
        step = source_step(
            state.record.stage, target_state, sent=not failure, fails=bool(failure) or self._stops
        )
        if step is not SourceStep.HAND_OVER:
            await self._stay(guest, target, failure or CANCELLED)
            return False
        try:
            state.write(msgspec.structs.replace(state.record, stage=Stage.SENT))
        except OSError as error:  # a full disk: the guest is still this machine's
            await self._stay(guest, target, describe(error))
            return False
        self._run_may_be_requested = False
        state.step("sent")
        return True

    @property
    def _stops(self) -> bool:
        """Report whether the guest is to stay, or has ended."""
        return self._cancelled.is_set() or self._state.facts.outcome is not None

    async def _send(
        self, guest: Guest, vmi: VirtualMachineInstance, request: MigrationRequest
    ) -> str:
        """Send the guest until both sides have reported success; return why it has failed."""
        try:
            target = self._target = await self._connect_target(request.uid, request.node)
            outgoing = Outgoing(
                memory=await target.open_memory(),
                disks=target.disks,
                open_disk=target.open_disk,
                options=request.options,
                stopped=self._stopped.set,
            )
            await guest.send(vmi, outgoing)
            self._state.step("transferred")
            await _complete(target)
        except (GuestError, OSError) as error:
            return describe(error)
        return ""

    async def _lead(self, vmi: VirtualMachineInstance) -> None:
        """Lead the addresses to the target, which is to have the guest within milliseconds.

        Packets wait for it there.  Here they would be lost, and TCP sends again after 200 ms only.
        """
        if (target := self._target) is None:
            return
        with suppress(GuestError):  # the migration fails by itself
            await target.expect_guest()
        if not self._stays:
            self._let_go(vmi)

    def _let_go(self, vmi: VirtualMachineInstance) -> None:
        record = self._state.record
        pod = Key(record.namespace, target_pod_name(vmi, record.departure))
        self._networking.let_go(record.id, record.addresses, record.departure_node, pod)

    async def _stay(self, guest: Guest, target: MigrationTarget | None, failure: str) -> None:
        """Run the guest on here, and end the target."""
        state = self._state
        self._stays = True
        if target is not None:
            await target.cancel(failure)
        if state.record.addresses:
            await self._networking.take_over(state.record.id)
        if state.facts.outcome is None:
            try:
                await guest.stay()
            except GuestError:  # it hangs half-way
                await state.destroy(guest)
        state.write(msgspec.structs.replace(state.record, stage=Stage.STARTED))
        self._report(Progress.FAILED, failure)
        state.step("stayed")
        migration = state.facts.migration
        if migration is not None:
            message = f"migration uid {migration.uid} failed. reason:{migration.failure}"
            state.recorder.vmi_event("Warning", MIGRATED, f"VirtualMachineInstance {message}")

    def _report(self, progress: Progress, failure: str = "") -> None:
        migration = self._state.facts.migration
        if migration is not None:
            abort = "Succeeded" if failure == CANCELLED else migration.abort
            changed = replace(
                migration, progress=progress, failure=failure or migration.failure, abort=abort
            )
            self._state.set_facts(replace(self._state.facts, migration=changed))

    def report_sent(self) -> None:
        """Report that the other side runs the guest, and its status."""
        self._report(Progress.SENT)

    def _report_downtime(self, guest: Guest) -> None:
        """Report the downtime of the guest, unless an earlier manager has stopped it."""
        migration = self._state.facts.migration
        if migration is not None and migration.downtime is None and guest.stopped_at:
            changed = replace(migration, downtime=max(0.0, time.time() - guest.stopped_at))
            self._state.set_facts(replace(self._state.facts, migration=changed))

    async def _hand_over(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        """Request the target to run the guest until that is certain, or it is certainly gone.

        vmi: None if it is deleted, or shown on the target's host, whose agent alone caches it.
        """
        state = self._state
        if vmi is not None:
            self._let_go(vmi)  # also what an earlier manager has
        while True:
            self._recheck.clear()
            target, target_state = await self._observe_target()
            step = source_step(
                state.record.stage,
                target_state,
                sent=True,
                fails=False,
                run_requested=self._run_may_be_requested,
            )
            if step is SourceStep.STAY and await self._take_leases_back(prepare):
                await self._stay(guest, target, "the target ended before it ran the guest")
                return
            if step in {SourceStep.STAY, SourceStep.LOSE}:
                self._report(Progress.FAILED, "the target has ended with the guest")
                state.record_outcome(lost(state.facts))
                await state.destroy(guest)
                return
            if step is SourceStep.END and target is None:
                break
            if target is not None and await self._request_run(target, guest):
                break
            self.report_sent()
            await wait_at_most(self._recheck, _RETRY_SECONDS)
        self.report_sent()
        state.step(HANDED_OVER)
        node = state.record.departure_node
        state.recorder.vmi_event(
            "Normal", MIGRATED, f"The VirtualMachineInstance migrated to node {node}."
        )
        state.record_outcome(migrated(state.facts))
        await state.destroy(guest)

    async def _take_leases_back(self, prepare: Prepare) -> bool:
        """Acquire the leases of the disks again, which the target may have had and released.

        Return False if another machine has one of them by now: the memory here is older than its
        disk.  A directory that does not answer is waited for.
        """
        while True:
            try:
                await self._leases.take_back(self._state.record.uid, prepare)
            except (DriveError, StartError) as error:
                if isinstance(error, StartError) and error.busy:
                    return False
                log.warning("leases not taken back yet", error=describe(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return True

    async def _observe_target(self) -> tuple[MigrationTarget | None, TargetState]:
        """Return the target, if it can be reached, and its state.

        A change that the API shows meanwhile ends the wait for its answer.
        """
        if self._observed is TargetState.RUNNING:  # whether it answers or not
            return None, TargetState.RUNNING
        target = await run_until(self._recheck, self._connected_target())
        return (None, self._observed) if target is None else (target, await target.state())

    async def _connected_target(self) -> MigrationTarget | None:
        record = self._state.record
        try:
            self._target = await self._connect_target(record.departure, record.departure_node)
        except NoAnswerError:
            return None
        return self._target

    async def _request_run(self, target: MigrationTarget, guest: Guest) -> bool:
        """Request the target to run the guest; return whether the API shows it there.

        It may not answer any more, so a change that the API shows meanwhile ends this as well.
        """
        self._run_may_be_requested = True
        return await run_until(self._recheck, self._run_on_target(target, guest)) or False

    async def _run_on_target(self, target: MigrationTarget, guest: Guest) -> bool:
        try:
            async with asyncio.timeout(_RETRY_SECONDS):
                await target.run_guest(paused=self._state.record.paused)
            # Not before: the guest would stand still while the API is written.
            self.report_sent()
            self._report_downtime(guest)
            await target.reported()
        except (GuestError, TimeoutError):
            return False
        return True


async def _complete(target: MigrationTarget) -> None:
    """Wait until a target has all of the guest.  Raises GuestError."""
    try:
        async with asyncio.timeout(COMPLETE_SECONDS):
            await target.complete()
    except TimeoutError:
        why = f"the target has not received the whole guest after {COMPLETE_SECONDS:g} s"
        raise GuestError(why) from None
