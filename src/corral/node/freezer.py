"""Freezes guests' file systems, and for no longer than was asked."""

import asyncio

import structlog

from corral.aio import Background, wait_at_most
from corral.node.hypervisor import GuestAgent, GuestError

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

    async def freeze(self, uid: str, agent: GuestAgent, seconds: float) -> None:
        """Freeze, for so many seconds at most; for ever if that is none.  Raises GuestError."""
        self._forget(uid)
        await agent.freeze()
        if seconds and self._tasks is not None:
            thawed = self._thawed[uid] = asyncio.Event()
            self._tasks.start(self._thaw_later(uid, agent, thawed, seconds), name=f"thaw {uid}")

    async def thaw(self, uid: str, agent: GuestAgent) -> None:
        """Raises GuestError."""
        self._forget(uid)
        await agent.thaw()

    def _forget(self, uid: str) -> None:
        if (thawed := self._thawed.pop(uid, None)) is not None:
            thawed.set()

    async def _thaw_later(
        self, uid: str, agent: GuestAgent, thawed: asyncio.Event, seconds: float
    ) -> None:
        try:
            await wait_at_most(thawed, seconds)
        finally:
            if not thawed.is_set():
                self._thawed.pop(uid, None)
                try:
                    await agent.thaw()
                except GuestError as error:
                    log.warning("a guest was not thawed", uid=uid, error=str(error))
