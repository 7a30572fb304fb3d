"""Freezes guests' file systems, and for no longer than was asked."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import msgspec
import structlog

from corral import files
from corral.aio import Background, wait_at_most
from corral.node.hypervisor import GuestError
from corral.node.machine import Machine

NOTE = "frozen.json"
AGAIN_SECONDS = 30.0
"""When a guest that was not thawed in time is tried again."""
FAREWELL_SECONDS = 5.0
"""How long a guest may take to be thawed where the manager ends."""

log = structlog.get_logger()


class Note(msgspec.Struct, frozen=True):
    """When a guest is to be thawed, in seconds of the epoch; kept in its machine's directory."""

    thaw_at: float


class Freezer:
    """Who is frozen until when.

    When it stops running nobody is left who would remember, so what is frozen for a time is thawed;
    where it was killed, the next manager does so in time, or late.
    """

    def __init__(self) -> None:
        self._tasks: Background | None = None
        self._thawed: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        """Keep the times until cancelled."""
        async with Background() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def recall(self, machine: Machine) -> None:
        """Keep what an earlier manager has promised of a machine."""
        note = files.read_json(machine.directory / NOTE, Note)
        if note is not None and machine.record.uid not in self._thawed:
            self._keep(machine, max(0.0, note.thaw_at - time.time()))

    async def freeze(self, machine: Machine, seconds: float) -> None:
        """Freeze, for so many seconds at most; for ever if that is none.  Raises GuestError.

        The time is kept whatever the agent answers: a guest that took too long to say so is frozen.
        """
        agent, before = machine.guest.agent, machine.facts.frozen
        if seconds:
            try:
                note = msgspec.json.encode(Note(time.time() + seconds))
                files.replace(machine.directory / NOTE, note)
            except OSError as error:
                raise GuestError(f"when to thaw cannot be noted: {error}") from error
            self._keep(machine, seconds)
        machine.learn(replace(machine.facts, frozen=True))
        try:
            await agent.freeze()
        except GuestError:
            machine.learn(replace(machine.facts, frozen=before))
            raise
        if not seconds:
            self._forget(machine)

    async def thaw(self, machine: Machine) -> None:
        """Raises GuestError."""
        await machine.guest.agent.thaw()
        self._forget(machine)
        machine.learn(replace(machine.facts, frozen=False))

    def _keep(self, machine: Machine, seconds: float) -> None:
        uid = machine.record.uid
        if (earlier := self._thawed.pop(uid, None)) is not None:
            earlier.set()
        if self._tasks is not None:
            thawed = self._thawed[uid] = asyncio.Event()
            self._tasks.start(self._thaw_later(machine, thawed, seconds), name=f"thaw {uid}")

    def _forget(self, machine: Machine) -> None:
        if (thawed := self._thawed.pop(machine.record.uid, None)) is not None:
            thawed.set()
        with suppress(OSError):
            (machine.directory / NOTE).unlink()

    async def _thaw_later(self, machine: Machine, thawed: asyncio.Event, seconds: float) -> None:
        """Until it is thawed, by whomever, or has ended."""
        try:
            while not thawed.is_set():
                await wait_at_most(thawed, seconds)
                if not thawed.is_set():
                    await self._try_to_thaw(machine)
                seconds = AGAIN_SECONDS
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._try_to_thaw(machine)
            raise

    async def _try_to_thaw(self, machine: Machine) -> None:
        try:
            await self.thaw(machine)
        except GuestError as error:
            log.warning("a guest was not thawed", uid=machine.record.uid, error=str(error))
            if machine.facts.ended:
                self._forget(machine)
