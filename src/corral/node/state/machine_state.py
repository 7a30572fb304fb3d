"""The state of one machine, which its parts share: observed facts, the record on disk, events."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.aio import Signal, wait_at_most
from corral.api.kinds.corral.spare_state import PAUSED_AS_SPARE
from corral.api.kinds.vmi.fork_state import PENDING, RENEWED
from corral.node.hypervisor import Change, Guest, GuestError, StuckError
from corral.node.state import machine_record as records
from corral.node.state.events import MachineEvents
from corral.node.state.facts import (
    INTERRUPTED,
    MIGRATED,
    SILENT,
    STUCK,
    Facts,
    ForkState,
    Migration,
    Progress,
    State,
    Trouble,
    fold,
    responsive,
    start_failed,
    stuck,
    unresponsive,
)
from corral.node.state.machine_record import Record, Stage

OnStep = Callable[[str], None]
"""Called with the name of each step in a machine's life, for metrics and the timeline."""

log = structlog.get_logger()

IDENTITY_SECONDS: Final = 30.0
"""Time for the guest of a fork to get an identity of its own, before it is probed and queried."""
IDENTITY_RENEWED: Final = "identity renewed"
"""Step of a fork whose guest has an identity of its own."""


class MachineState:
    """The facts and the record of a machine, in its directory.

    ``recorder`` gets its events; ``step`` is called with each step.
    """

    def __init__(
        self, record: Record, directory: Path, *, recorder: MachineEvents, step: OnStep
    ) -> None:
        self.record = record
        self.directory = directory
        self.facts = Facts(
            addresses=record.addresses,
            unhealthy=record.unhealthy,
            evicted=record.evicted,
            fenced=record.fenced,
            outcome=record.outcome,
            message=record.message,
            out_of_memory=record.out_of_memory,
            never_ran=record.never_ran,
            migration=_migration(record),
            fork=ForkState(record.fork, record.fork_message) if record.fork else None,
            saving=record.stands_still,
            paused_as_spare=record.paused_as_spare,
        )
        self.recorder = recorder
        self.step = step
        self.turn = asyncio.Lock()
        """Held while its memory is saved, sent, or copied: by one part at a time."""
        self._identity_settled = Signal()
        self.vcpus = asyncio.Lock()
        """Held while vCPUs are stopped and run again, so that nobody else's request is undone."""

    def set_facts(self, facts: Facts) -> None:
        if facts != self.facts:
            before, self.facts = self.facts, facts
            if not (before.is_passing and facts.is_passing):
                self.recorder.changed()

    def set_trouble(self, trouble: Trouble) -> None:
        """Set the reason why it does not start."""
        self.set_facts(replace(self.facts, state=State.PREPARING, trouble=trouble))

    async def resume_guest(self, guest: Guest, *, paused: bool) -> bool:
        """Resume a guest, unless it starts paused; return whether that worked.

        After a failure it is unknown whether the guest runs: it is destroyed, lest it be started
        twice.
        """
        if paused:
            self.set_facts(fold(self.facts, Change.PAUSED))
            return True
        try:
            await guest.resume()
        except GuestError as error:
            self.record_outcome(start_failed(self.facts, str(error)))
            await self.destroy(guest)
            return False
        self.step("resumed")
        return True

    async def destroy(self, guest: Guest) -> None:
        """Destroy a guest; one that does not end is reported, and its GONE still follows."""
        try:
            await guest.destroy()
        except StuckError as error:
            self.report_stuck(str(error))

    def report_stuck(self, why: str) -> None:
        """Report that a killed process does not end."""
        if self.facts.trouble is None or self.facts.trouble.reason != STUCK:
            self.recorder.pod_event("Warning", STUCK, f"error killing pod: {why}")
        self.set_facts(stuck(self.facts, why))

    def report_monitor(self, why: str, *, hangs: bool) -> None:
        """Report why QEMU cannot be managed, and whether it hangs; an empty ``why``: it answers."""
        before = self.facts
        self.set_facts(unresponsive(before, why, hangs=hangs) if why else responsive(before))
        if self.facts.silent and not before.silent:
            self.recorder.vmi_event("Warning", SILENT, f"QEMU hangs: {why}")
        elif before.silent and not self.facts.silent:
            self.recorder.vmi_event("Normal", "MonitorAnswers", "QEMU answers again.")

    def write(self, record: Record) -> None:
        """Write a record.  Raises OSError."""
        records.write(self.directory, record)
        self.record = record

    def record_cause(self, **cause: str) -> None:
        """Record why it is made to end, before it is, lest the next manager let it run on.

        ``cause``: one of ``unhealthy``, ``evicted`` and ``fenced``.
        """
        record = msgspec.structs.replace(self.record, **cause)
        try:
            self.write(record)
        except OSError as error:  # a full disk: the next manager finds out for itself
            log.warning("the reason for the end of a machine is not recorded", error=str(error))
        self.set_facts(replace(self.facts, **cause))  # type: ignore[arg-type]

    def record_fork(self, reason: str, message: str = "", *, source: str = "") -> None:
        """Record how the start from a checkpoint went.

        ``source``: the VMI whose identity the guest has.
        """
        record = msgspec.structs.replace(
            self.record, fork=reason, fork_message=message, fork_of=source
        )
        try:
            self.write(record)
        except OSError as error:  # a full disk: the next manager renews the identity once more
            log.warning("the state of a fork is not recorded", error=str(error))
        self.set_facts(replace(self.facts, fork=ForkState(reason, message)))
        if reason == RENEWED:
            self.step(IDENTITY_RENEWED)
        self._identity_settled.set()

    def record_spare_pause(self, *, paused: bool) -> None:
        """Record that the guest is about to be paused as a spare, or has gone on.  Raises OSError.

        The facts say so in any case where it goes on: the next manager has it go on once more.
        """
        facts = replace(self.facts, paused_as_spare=paused)
        record = msgspec.structs.replace(self.record, paused_as_spare=paused)
        if paused:
            self.write(record)
            self.set_facts(replace(facts, paused=PAUSED_AS_SPARE))
            return
        self.set_facts(facts)
        self.write(record)

    async def until_identified(self) -> None:
        """Wait while the guest of a fork is about to get an identity of its own.

        What its guest does meanwhile delays that, and is done in the name of another one.  Return
        also once it has failed, or takes too long.
        """
        if self.record.fork == PENDING:
            await wait_at_most(self._identity_settled, IDENTITY_SECONDS)

    async def until_agent_is_free(self, agent_up: Signal) -> None:
        """Wait until the agent has connected and, in a fork, has renewed the guest's identity."""
        await agent_up.wait()
        await self.until_identified()

    def mark_exclusive(self) -> None:
        """Record that two of it must never run."""
        record = msgspec.structs.replace(self.record, exclusive=True)
        try:
            self.write(record)
        except OSError as error:  # a full disk: the agent fences it, the watchdog does not yet
            log.warning("an exclusive machine is not recorded as such", error=str(error))
            self.record = record

    def record_outcome(self, facts: Facts) -> None:
        """Record the outcome before the guest is destroyed, lest the next manager find a crash."""
        if self.record.outcome is None and facts.outcome is not None:
            self._write_outcome(facts, self.record.stage)
            self.step("decided")
        self.set_facts(facts)

    def record_end(self, facts: Facts) -> None:
        """Record the end, once nothing of the machine runs any more."""
        self._write_outcome(facts, Stage.ENDED)
        self.step("ended")

    def _write_outcome(self, facts: Facts, stage: Stage) -> None:
        ended = msgspec.structs.replace(
            self.record,
            stage=stage,
            outcome=facts.outcome,
            message=facts.message,
            out_of_memory=facts.out_of_memory,
            never_ran=facts.never_ran,
        )
        try:
            self.write(ended)
        except OSError as error:  # a full disk: the next manager would find it crashed
            log.warning("the end of a machine is not recorded", error=str(error))


def _migration(record: Record) -> Migration | None:
    """Return the migration that a machine was part of when an earlier manager was killed."""
    if record.departure:
        if record.stage is Stage.SENDING:
            return Migration(uid=record.departure, progress=Progress.SENDING)
        if record.stage is Stage.SENT or record.message == MIGRATED:
            return Migration(uid=record.departure, progress=Progress.SENT)
        return Migration(uid=record.departure, progress=Progress.FAILED, failure=INTERRUPTED)
    if record.arrival:
        has_run = record.stage in {Stage.ARRIVING, Stage.STARTED} or record.started_at
        progress = Progress.ARRIVED if has_run else Progress.AWAITED
        return Migration(uid=record.arrival, progress=progress)
    return None
