"""Freezes guests' file systems, and for no longer than was asked."""

import asyncio
from dataclasses import replace

import structlog

from corral.aio import Background, wait_at_most
from corral.node.hypervisor import GuestError
from corral.node.machine import Machine

log = structlog.get_logger()


class Freezer:
    """Who is frozen until when.

    When it stops running nobody is left who would remember, so what is frozen for a time is thawed.
    """

    def __init__(self) -> None:
        self._tasks: Background | None = None
        self._thawed: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        """Keep the times until cancelled."""
        async with Background() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    async def freeze(self, machine: Machine, seconds: float) -> None:
        """Freeze, for so many seconds at most; for ever if that is none.  Raises GuestError."""
        uid = machine.record.uid
        self._forget(uid)
        await machine.guest.agent.freeze()
        machine.learn(replace(machine.facts, frozen=True))
        if seconds and self._tasks is not None:
            thawed = self._thawed[uid] = asyncio.Event()
            self._tasks.start(self._thaw_later(machine, thawed, seconds), name=f"thaw {uid}")

    async def thaw(self, machine: Machine) -> None:
        """Raises GuestError."""
        self._forget(machine.record.uid)
        await machine.guest.agent.thaw()
        machine.learn(replace(machine.facts, frozen=False))

    def _forget(self, uid: str) -> None:
        if (thawed := self._thawed.pop(uid, None)) is not None:
            thawed.set()

    async def _thaw_later(self, machine: Machine, thawed: asyncio.Event, seconds: float) -> None:
        try:
            await wait_at_most(thawed, seconds)
        finally:
            if not thawed.is_set():
                try:
                    await self.thaw(machine)
                except GuestError as error:
                    log.warning("a guest was not thawed", uid=machine.record.uid, error=str(error))
