"""What is known of one machine, what is on record of it, and who is told: its parts share this."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from corral.node import record as records
from corral.node.facts import Facts, State, Trouble, fold, stillborn
from corral.node.hypervisor import Change, Guest, GuestError
from corral.node.record import Record
from corral.node.voice import Voice

Steps = Callable[[str], None]
"""Is told each step that was taken, for the timeline."""


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
            self.learn(stillborn(self.facts, str(error)))
            await guest.destroy()
            return False
        self.step("resumed")
        return True

    def write(self, record: Record) -> None:
        """Put something on record.  Raises OSError."""
        records.write(self.directory, record)
        self.record = record
