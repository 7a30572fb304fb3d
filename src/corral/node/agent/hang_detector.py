"""Detects machines whose QEMU hangs: it was stopped (SIGSTOP), or waits in the kernel.

Every few seconds the CPU time of each QEMU's main thread, which answers its monitor, is sampled.
If it has grown, QEMU lives, and is not pinged; only one that has not run meanwhile (its guest is
idle, paused, or hangs) has to answer.  So an idle machine costs one read of a small file.

One that does not answer hangs only if it stands still: one that runs, or waits for a CPU, is slow.
"""

import asyncio
from collections.abc import Callable, Iterable

from corral.aio import OBJECTS_PER_TURN, Background, in_batches
from corral.node.host.process import made_no_progress
from corral.node.hypervisor import Guest, GuestError, NoAnswerError
from corral.node.machine.lifecycle import Machine
from corral.node.state.machine_record import Stage

INTERVAL_SECONDS = 10.0
"""Time between samples of all machines."""
ANSWER_SECONDS = 10.0
"""Longest ping: QEMU may be throttled by its CPU limit, or its disk be slow."""
PINGS = 3
"""Number of pings in a row that fail, with no progress meanwhile, before QEMU counts as hung."""
_RETURN_SECONDS = 300.0
"""Timeout of a ping to a hung QEMU; it is answered as soon as QEMU runs again."""


class HangDetector:
    """Samples all machines of a node, and pings those that stand still."""

    def __init__(self, machines: Callable[[], Iterable[Machine]]) -> None:
        self._machines = machines
        self._ran: dict[Guest, int] = {}
        self._pinging: set[Guest] = set()

    async def run(self) -> None:
        """Sample until cancelled."""
        async with Background() as tasks:
            while True:
                await asyncio.sleep(INTERVAL_SECONDS)
                await self._sample(tasks)

    async def _sample(self, tasks: Background) -> None:
        before, self._ran = self._ran, {}
        async for machines in in_batches([*self._machines()], OBJECTS_PER_TURN):
            for machine in machines:
                guest = _monitored_guest(machine)
                if guest is None or guest in self._pinging:
                    continue
                self._ran[guest] = ran = guest.ran_nanos()
                if before.get(guest) == ran or machine.facts.silent:
                    self._pinging.add(guest)
                    tasks.start(self._check(machine, guest), name="hang check")

    async def _check(self, machine: Machine, guest: Guest) -> None:
        hangs = True
        try:
            while hangs:
                why = await (_recovers(guest) if machine.facts.silent else _hangs(guest))
                hangs = bool(why) and _monitored_guest(machine) is guest
                if _monitored_guest(machine) is guest:
                    machine.report_monitor(why)
        except GuestError:
            pass  # its connection has closed, which is detected elsewhere
        finally:
            self._pinging.discard(guest)


def _monitored_guest(machine: Machine) -> Guest | None:
    """Return the guest of a machine that has to answer: it runs, and is not being saved."""
    facts = machine.facts
    if facts.saving or facts.outcome is not None or machine.record.stage is not Stage.STARTED:
        return None
    try:
        return machine.guest
    except GuestError:
        return None


async def _hangs(guest: Guest) -> str:
    """Return why QEMU counts as hung; empty if it does not, or has ended.  Raises GuestError."""
    why = ""
    for _ in range(PINGS):
        before = guest.pulse()
        try:
            await guest.ping(ANSWER_SECONDS)
        except NoAnswerError as error:
            why = str(error)
        else:
            return ""
        if not made_no_progress(before, guest.pulse()):
            return ""
    return why


async def _recovers(guest: Guest) -> str:
    """Return why a hung QEMU still hangs; empty if it answers again.  Raises GuestError."""
    try:
        await guest.ping(_RETURN_SECONDS)
    except NoAnswerError as error:
        return str(error)
    return ""
