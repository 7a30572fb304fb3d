"""Pauses the spares of warm pools that are kept so, and resumes them when they are handed out.

What is to be done follows from the VMI alone, and what was done from the machine's record, so a
manager goes on where the last one was.  A pause by a user is none of a spare's: it stays.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from corral.aio import Signal
from corral.api.kinds.corral.spare_state import is_kept_paused
from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL
from corral.api.kinds.vmi.fork_state import has_own_identity
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.hypervisor import GuestError
from corral.node.machine.lifecycle import Machine
from corral.reconcile.objects import is_ready

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Pauses between failed attempts, doubled each time."""

log = structlog.get_logger()


class PausedSpares:
    """Pauses and resumes the spares of a node.

    ``instance`` returns the cached VMI of a machine by its uid.
    """

    def __init__(self, instance: Callable[[str], VirtualMachineInstance | None]) -> None:
        self._instance = instance
        self._due: dict[str, Signal] = {}

    def wake(self, uid: str) -> None:
        """Notify of a change of a VMI, or of its guest."""
        if (due := self._due.get(uid)) is not None:
            due.set()

    async def run(self, machine: Machine) -> None:
        """Pause and resume a machine as its VMI demands, until cancelled."""
        uid = machine.record.uid
        due = self._due[uid] = Signal()
        pause = _FIRST_PAUSE_SECONDS
        try:
            while True:
                due.clear()
                try:
                    await self._sync(machine)
                except (GuestError, OSError) as error:
                    log.warning("the pause of a spare failed", uid=uid, error=describe(error))
                    await asyncio.sleep(pause)  # a wake may be of what the attempt has changed
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                else:
                    pause = _FIRST_PAUSE_SECONDS
                    await due.wait()
        finally:
            del self._due[uid]

    async def _sync(self, machine: Machine) -> None:
        """Raise GuestError and OSError."""
        if (vmi := self._instance(machine.record.uid)) is None:
            return
        if not is_kept_paused(vmi):
            if machine.record.paused_as_spare:
                await machine.spare_pause.end(machine.guest)
        elif machine.facts.paused_as_spare or _is_settled(machine, vmi):
            await machine.spare_pause.begin(machine.guest)


def may_be_paused(vmi: VirtualMachineInstance) -> bool:
    """Report whether a machine is a spare, whose pool may have it paused."""
    return WARM_POOL_LABEL in vmi.metadata.labels


def _is_settled(machine: Machine, vmi: VirtualMachineInstance) -> bool:
    """Report whether a guest has booted, and is one that may be handed out.

    It boots until its agent connects, or it is idle.
    """
    return not machine.booting and is_ready(vmi) and has_own_identity(vmi)
