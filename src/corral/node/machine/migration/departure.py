"""Sends the guest of a machine to another node; the manager may be killed after each step.

    recorded: Sending       the guest runs here; its memory and disks are copied meanwhile
    QEMU has sent all       the guest is stopped
    the target is complete
    recorded: Sent          from here on the guest is the target's (``handover``)
    the target runs the guest, and the API shows that
    QEMU is destroyed
    recorded: Ended

A manager that finds Sending cancels the migration: the guest runs on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import msgspec

from corral.aio import Background, Signal, run_until, wait_at_most
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import Guest, GuestError, MigrationOptions, NoAnswerError, Outgoing
from corral.node.machine.migration.handover import SourceStep, Target, source_step
from corral.node.machine.migration.targets import MigrationTarget
from corral.node.state.facts import INTERRUPTED, Migration, Progress, lost, migrated
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState

MIGRATED = "Migrated"
"""Reason of KubeVirt's events about the end of a migration."""
CANCELLED = "Live migration aborted"
"""Why a migration has failed that was cancelled (KubeVirt's failureReason)."""
HANDED_OVER = "handed over"
"""The step of a source after which the target is certain to run the guest."""
COMPLETE_SECONDS = 30.0
"""Longest wait for a target that was sent the whole guest, which stands still meanwhile."""
_RETRY_SECONDS = 1.0

Reach = Callable[[str, str], Awaitable[MigrationTarget]]
"""Returns the target of a migration, by its uid and node.  Raises NoAnswerError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A migration that a source is to run: its uid, its target, and its settings."""

    uid: str
    node: str
    options: MigrationOptions


class Departure:
    """Sends one machine's guest on request."""

    def __init__(self, state: MachineState, reach: Reach) -> None:
        self._state = state
        self._reach = reach
        self._order: Order | None = None
        self._requested = Signal()
        self._cancelled = Signal()
        self._recheck = Signal()
        self._observed = Target.UNKNOWN
        self._target: MigrationTarget | None = None
        """The target that is reached, until the guest stays or is handed over."""
        self._may_be_told = True
        """Whether the target may have been told to run the guest, also by an earlier manager."""
        self.idle = Signal(is_set=True)
        """Cleared while the guest may be stopped, so that requests to it would be lost."""

    def request(self, order: Order) -> None:
        """Migrate, unless this migration has been run, or another one is."""
        if order.uid != self._state.record.departure and self.idle.is_set():
            self._order = order
            self._requested.set()

    def cancel(self) -> None:
        """Cancel the migration, unless the guest has been handed over."""
        self._cancelled.set()

    def observe(self, target: Target) -> None:
        """Set what the API says of the target, which counts while it does not answer itself.

        ABSENT: it has ended without the guest; GONE: its pod has ended, or is gone; RUNNING: the
        VMI's status shows the guest there.
        """
        if target is not self._observed:
            self._observed = target
            self._recheck.set()

    def start_tasks(
        self, tasks: Background, guest: Guest, vmi: VirtualMachineInstance | None
    ) -> None:
        """Start the task that sends the guest on request, which ends it here."""
        if self._state.record.stage is Stage.SENDING:
            tasks.start(self._stay(guest, None, INTERRUPTED), name="cancel migration")
        if self._state.record.stage is Stage.SENT:
            self._requested.set()
        if vmi is not None:
            tasks.whenever(self._requested, self._run, guest, vmi, name="migrate")

    async def _run(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        if self._state.facts.outcome is not None:
            return
        self.idle.clear()
        try:
            if self._state.record.stage is Stage.SENT:
                await self._hand_over(guest)
            elif self._order is not None:
                await self._migrate(guest, vmi, self._order)
        finally:
            if self._target is not None:
                self._target.release()
                self._target = None
            self.idle.set()

    async def _migrate(self, guest: Guest, vmi: VirtualMachineInstance, order: Order) -> None:
        state = self._state
        self._cancelled.clear()
        self._observed = Target.UNKNOWN
        paused = bool(state.facts.paused)
        state.write(
            msgspec.structs.replace(
                state.record,
                stage=Stage.SENDING,
                departure=order.uid,
                departure_node=order.node,
                paused=paused,
            )
        )
        state.set_facts(
            replace(state.facts, migration=Migration(uid=order.uid, progress=Progress.SENDING))
        )
        state.step("sending")
        state.recorder.vmi_event("Normal", "Migrating", "VirtualMachineInstance is migrating.")
        sending = await run_until(self._cancelled, self._send(guest, vmi, order))
        failure = CANCELLED if sending is None else sending
        target = self._target
        known = Target.ABSENT if target is None else await target.state()
        step = source_step(
            state.record.stage, known, sent=not failure, fails=bool(failure) or self._stops
        )
        if step is not SourceStep.HAND_OVER:
            await self._stay(guest, target, failure or CANCELLED)
            return
        try:
            state.write(msgspec.structs.replace(state.record, stage=Stage.SENT))
        except OSError as error:  # a full disk: the guest is still this machine's
            await self._stay(guest, target, describe(error))
            return
        self._may_be_told = False
        self._report(Progress.SENT)
        state.step("sent")
        await self._hand_over(guest)

    @property
    def _stops(self) -> bool:
        """Report whether the guest is to stay, or has ended."""
        return self._cancelled.is_set() or self._state.facts.outcome is not None

    async def _send(self, guest: Guest, vmi: VirtualMachineInstance, order: Order) -> str:
        """Send the guest until both sides have reported success; return why it has failed."""
        try:
            target = self._target = await self._reach(order.uid, order.node)
            outgoing = Outgoing(
                memory=await target.open_memory(),
                disks=target.disks,
                open_disk=target.open_disk,
                options=order.options,
            )
            await guest.send(vmi, outgoing)
            self._state.step("transferred")
            await _complete(target)
        except (GuestError, OSError) as error:
            return describe(error)
        return ""

    async def _stay(self, guest: Guest, target: MigrationTarget | None, failure: str) -> None:
        """Run the guest on here, and end the target."""
        state = self._state
        if target is not None:
            await target.cancel(failure)
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

    def _report_downtime(self, guest: Guest) -> None:
        """Report how long the guest stood still, unless an earlier manager has stopped it."""
        migration = self._state.facts.migration
        if migration is not None and migration.downtime is None and guest.stopped_at:
            changed = replace(migration, downtime=max(0.0, time.time() - guest.stopped_at))
            self._state.set_facts(replace(self._state.facts, migration=changed))

    async def _hand_over(self, guest: Guest) -> None:
        """Tell the target to run the guest until that is certain, or it is certainly gone."""
        state = self._state
        while True:
            self._recheck.clear()
            target, known = await self._known()
            step = source_step(
                state.record.stage, known, sent=True, fails=False, told=self._may_be_told
            )
            if step is SourceStep.STAY:
                await self._stay(guest, target, "the target ended before it ran the guest")
                return
            if step is SourceStep.LOSE:
                self._report(Progress.FAILED, "the target has ended with the guest")
                state.record_outcome(lost(state.facts))
                await state.destroy(guest)
                return
            if step is SourceStep.END and target is None:
                break
            if target is not None and await self._told(target, guest):
                break
            await wait_at_most(self._recheck, _RETRY_SECONDS)
        state.step(HANDED_OVER)
        node = state.record.departure_node
        state.recorder.vmi_event(
            "Normal", MIGRATED, f"The VirtualMachineInstance migrated to node {node}."
        )
        state.record_outcome(migrated(state.facts))
        await state.destroy(guest)

    async def _known(self) -> tuple[MigrationTarget | None, Target]:
        """Return the target, if it can be reached, and how far it is.

        What the API shows meanwhile ends the wait for its answer.
        """
        if self._observed is Target.RUNNING:  # whether it answers or not
            return None, Target.RUNNING
        target = await run_until(self._recheck, self._reached())
        return (None, self._observed) if target is None else (target, await target.state())

    async def _reached(self) -> MigrationTarget | None:
        record = self._state.record
        try:
            self._target = await self._reach(record.departure, record.departure_node)
        except NoAnswerError:
            return None
        return self._target

    async def _told(self, target: MigrationTarget, guest: Guest) -> bool:
        """Have the target run the guest; return whether the API shows it there.

        It may not answer any more, so what the API shows meanwhile ends this as well.
        """
        self._may_be_told = True
        return await run_until(self._recheck, self._tell(target, guest)) or False

    async def _tell(self, target: MigrationTarget, guest: Guest) -> bool:
        try:
            await target.run_guest(paused=self._state.record.paused)
            self._report_downtime(guest)
            await target.reported()
        except GuestError:
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
