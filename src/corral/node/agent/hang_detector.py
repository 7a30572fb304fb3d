"""Finds machines whose QEMU hangs: it was stopped by somebody, or waits for the kernel.

One look at all machines every few seconds tells how long the main thread of each QEMU has run,
which answers its monitor.  Where that is more than at the last look it lives, and nobody asks it;
only one that has not run at all meanwhile (its guest is idle, paused, or hangs) has to answer.  So
an idle machine costs one read of a small file.

Who does not answer hangs only if it stands still: who works, or waits for a processor, is slow.
"""

import asyncio
from collections.abc import Callable, Iterable

from corral.aio import OBJECTS_A_TURN, Background, in_turns
from corral.node.host.process import stood_still
from corral.node.hypervisor import Guest, GuestError, NoAnswerError
from corral.node.machine.lifecycle import Machine
from corral.node.state.machine_record import Stage

LOOK_SECONDS = 10.0
"""How often all machines are looked at."""
ANSWER_SECONDS = 10.0
"""How long one may take to answer: it may be stopped for its limit, or its disk be slow."""
QUESTIONS = 3
"""So often in a row it does not answer, and stands still meanwhile, before it is said to hang."""
_RETURN_SECONDS = 300.0
"""How long one that hangs is waited for until it is asked again: what is asked is kept for it."""


class HangDetector:
    """Looks at all machines of a node."""

    def __init__(self, machines: Callable[[], Iterable[Machine]]) -> None:
        self._machines = machines
        self._ran: dict[Guest, int] = {}
        self._asked: set[Guest] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        async with Background() as tasks:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look(tasks)

    async def _look(self, tasks: Background) -> None:
        before, self._ran = self._ran, {}
        async for machines in in_turns([*self._machines()], OBJECTS_A_TURN):
            for machine in machines:
                guest = _guest(machine)
                if guest is None or guest in self._asked:
                    continue
                self._ran[guest] = ran = guest.ran_nanos()
                if before.get(guest) == ran or machine.facts.silent:
                    self._asked.add(guest)
                    tasks.start(self._ask(machine, guest), name="does it hang")

    async def _ask(self, machine: Machine, guest: Guest) -> None:
        hangs = True
        try:
            while hangs:
                why = await (_return(guest) if machine.facts.silent else _hangs(guest))
                hangs = bool(why) and _guest(machine) is guest
                if _guest(machine) is guest:
                    machine.note_silence(why)
        except GuestError:
            pass  # its monitor has hung up, which is found out elsewhere
        finally:
            self._asked.discard(guest)


def _guest(machine: Machine) -> Guest | None:
    """The guest of a machine that has to answer: it runs, and its memory is not on its way."""
    facts = machine.facts
    if facts.saving or facts.outcome is not None or machine.record.stage is not Stage.STARTED:
        return None
    try:
        return machine.guest
    except GuestError:
        return None


async def _hangs(guest: Guest) -> str:
    """Why it is to be said to hang; empty where it lives, or has ended.  Raises GuestError."""
    why = ""
    for _ in range(QUESTIONS):
        before = guest.pulse()
        try:
            await guest.ping(ANSWER_SECONDS)
        except NoAnswerError as error:
            why = str(error)
        else:
            return ""
        if not stood_still(before, guest.pulse()):
            return ""
    return why


async def _return(guest: Guest) -> str:
    """Why one that hung still does; empty where it answers again.  Raises GuestError."""
    try:
        await guest.ping(_RETURN_SECONDS)
    except NoAnswerError as error:
        return str(error)
    return ""
