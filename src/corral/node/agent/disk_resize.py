"""Grows the disk of a claim where a machine has it open: its own QEMU does that."""

from collections.abc import Iterable

from corral.api.object import Key
from corral.node.agent.agent import Agent
from corral.node.hypervisor import GuestError


async def grow(agents: Iterable[Agent], claim: Key, size: int) -> None:
    """Let every machine that shows a claim to its guest have it in so many bytes.

    Raises GuestError where none does, or one does not do as it is told.
    """
    using = [each for agent in agents for each in agent.roster.machines_with(claim)]
    if not using:
        raise GuestError("the machine that has it is not found")
    for machine, vmi, volume in using:
        await machine.guest.grow(vmi, volume, size)
