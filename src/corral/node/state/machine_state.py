"""What is known of one machine, what is on record of it, and who is told: its parts share this."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from corral.node.hypervisor import Change, Guest, GuestError, StuckError
from corral.node.state import machine_record as records
from corral.node.state.events import Voice
from corral.node.state.facts import (
    SILENT,
    STUCK,
    Facts,
    State,
    Trouble,
    answering,
    fold,
    stillborn,
    stuck,
    unanswering,
)
from corral.node.state.machine_record import Record, Stage

Steps = Callable[[str], None]
"""Is told each step that was taken, for the timeline."""

log = structlog.get_logger()


class Chronicle:
    """The facts and the record of a machine, in its directory.

    ``voice`` is told what the API shall hear of; ``step`` is told each step that was taken.
    """

    def __init__(self, record: Record, directory: Path, *, voice: Voice, step: Steps) -> None:
        self.record = record
        self.directory = directory
        self.facts = Facts(
            addresses=record.addresses,
            unhealthy=record.unhealthy,
            evicted=record.evicted,
            outcome=record.outcome,
            message=record.message,
            out_of_memory=record.out_of_memory,
        )
        self.voice = voice
        self.step = step

    def learn(self, facts: Facts) -> None:
        if facts != self.facts:
            self.facts = facts
            self.voice.changed()

    def trouble(self, trouble: Trouble) -> None:
        """Tell why it does not start."""
        self.learn(replace(self.facts, state=State.PREPARING, trouble=trouble))

    async def let_run(self, guest: Guest, *, paused: bool) -> bool:
        """Have a guest execute, unless it begins paused; whether it can.

        Where that fails, nobody knows whether it runs: it is ended, lest it be started twice.
        """
        if paused:
            self.learn(fold(self.facts, Change.PAUSED))
            return True
        try:
            await guest.resume()
        except GuestError as error:
            self.decide(stillborn(self.facts, str(error)))
            await self.destroy(guest)
            return False
        self.step("resumed")
        return True

    async def destroy(self, guest: Guest) -> None:
        """End a guest; of one that does not end it is told, and its end is heard of as of any."""
        try:
            await guest.destroy()
        except StuckError as error:
            self.tell_stuck(str(error))

    def tell_stuck(self, why: str) -> None:
        """What was killed does not end."""
        if self.facts.trouble is None or self.facts.trouble.reason != STUCK:
            self.voice.of_pod("Warning", STUCK, f"error killing pod: {why}")
        self.learn(stuck(self.facts, why))

    def note_silence(self, why: str, *, hangs: bool) -> None:
        """QEMU cannot be managed, and perhaps hangs; or it can, where there is no why."""
        before = self.facts
        self.learn(unanswering(before, why, hangs=hangs) if why else answering(before))
        if self.facts.silent and not before.silent:
            self.voice.of_instance("Warning", SILENT, f"QEMU hangs: {why}")
        elif before.silent and not self.facts.silent:
            self.voice.of_instance("Normal", "MonitorAnswers", "QEMU answers again.")

    def write(self, record: Record) -> None:
        """Put something on record.  Raises OSError."""
        records.write(self.directory, record)
        self.record = record

    def condemn(self, *, unhealthy: str = "", evicted: str = "") -> None:
        """Why it is made to end: on record, lest the next manager let it go on."""
        unhealthy, evicted = unhealthy or self.facts.unhealthy, evicted or self.facts.evicted
        told = msgspec.structs.replace(self.record, unhealthy=unhealthy, evicted=evicted)
        try:
            self.write(told)
        except OSError as error:  # a full disk: the next manager finds out for itself
            log.warning("why a machine has to end is not on record", error=str(error))
        self.learn(replace(self.facts, unhealthy=unhealthy, evicted=evicted))

    def decide(self, facts: Facts) -> None:
        """How it ends is known: on record before it is ended, lest the next manager know less."""
        if self.record.outcome is None and facts.outcome is not None:
            self._put_on_record(facts, self.record.stage)
            self.step("decided")
        self.learn(facts)

    def close(self, facts: Facts) -> None:
        """Nothing of it runs any more, which is on record from now on."""
        self._put_on_record(facts, Stage.ENDED)
        self.step("ended")

    def _put_on_record(self, facts: Facts, stage: Stage) -> None:
        ended = msgspec.structs.replace(
            self.record,
            stage=stage,
            outcome=facts.outcome,
            message=facts.message,
            out_of_memory=facts.out_of_memory,
        )
        try:
            self.write(ended)
        except OSError as error:  # a full disk: the next manager would find it crashed
            log.warning("the end of a machine is not on record", error=str(error))
