"""Freezes guests' file systems, and for no longer than was asked."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import msgspec
import structlog

from corral import files
from corral.aio import Background, wait_at_most
from corral.node.hypervisor import GuestError, RefusedError
from corral.node.machine.lifecycle import Machine

NOTE = "frozen.json"
AGAIN_SECONDS = 30.0
LONGEST_AGAIN_SECONDS = 300.0
"""When a guest that was not thawed in time is tried again; doubled each time."""
FAREWELL_SECONDS = 5.0
"""How long a guest may take to be thawed where the manager ends."""

log = structlog.get_logger()


class Note(msgspec.Struct, frozen=True):
    """When a guest is to be thawed, in seconds of the epoch; kept in its machine's directory."""

    thaw_at: float


_NOT_CONNECTED = (
    "unexpected return code 400 (400 Bad Request), message: server error. command Freeze failed: "
    "\"LibvirtError(Code=86, Domain=10, Message='Guest agent is not responding: QEMU guest agent "
    "is not connected')\""
)
"""What KubeVirt's own server says: clients look for these words."""


class Freezer:
    """Who is frozen until when.

    When it stops running nobody is left who would remember, so what is frozen for a time is thawed;
    where it was killed, the next manager does so in time, or late.
    """

    def __init__(self) -> None:
        self._tasks: Background | None = None
        self._thawed: dict[str, asyncio.Event] = {}
        self._turns: WeakKeyDictionary[Machine, asyncio.Lock] = WeakKeyDictionary()

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

        The time is kept whatever the agent answers: a guest that took too long to say so is frozen,
        and is taken for it until it is thawed.  For the same reason one that was to be frozen for
        ever, and did not say so, is thawed.
        """
        async with self._turn(machine):
            agent, before = machine.guest.agent, machine.facts.frozen
            if not machine.facts.agent_connected:
                raise GuestError(_NOT_CONNECTED)
            if seconds:
                self._promise(machine, seconds)
            machine.set_facts(replace(machine.facts, frozen=True))
            try:
                await agent.freeze()
            except GuestError as error:
                if isinstance(error, RefusedError):
                    machine.set_facts(replace(machine.facts, frozen=before))
                if not seconds and not before:
                    self._promise(machine, AGAIN_SECONDS)
                raise
            if not seconds:
                self._forget(machine)

    async def thaw(self, machine: Machine) -> None:
        """Raises GuestError."""
        async with self._turn(machine):
            await self._thaw(machine)

    def _turn(self, machine: Machine) -> asyncio.Lock:
        """One after the other: what comes of a thaw must not end the time of the next freeze."""
        return self._turns.setdefault(machine, asyncio.Lock())

    async def _thaw(self, machine: Machine) -> None:
        await machine.guest.agent.thaw()
        self._forget(machine)
        machine.set_facts(replace(machine.facts, frozen=False))

    def _promise(self, machine: Machine, seconds: float) -> None:
        """Thaw it in so many seconds.  Raises GuestError."""
        try:
            note = msgspec.json.encode(Note(time.time() + seconds))
            files.replace(machine.directory / NOTE, note)
        except OSError as error:
            raise GuestError(f"when to thaw cannot be noted: {error}") from error
        self._keep(machine, seconds)

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
        again = AGAIN_SECONDS
        try:
            while not thawed.is_set():
                await wait_at_most(thawed, seconds)
                await self._try_to_thaw(machine, thawed)
                seconds, again = again, min(again * 2, LONGEST_AGAIN_SECONDS)
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._try_to_thaw(machine, thawed)
            raise

    async def _try_to_thaw(self, machine: Machine, thawed: asyncio.Event) -> None:
        async with self._turn(machine):
            if thawed.is_set():
                return
            if machine.facts.ended:
                self._forget(machine)
                return
            try:
                await self._thaw(machine)
            except GuestError as error:
                log.warning("a guest was not thawed", uid=machine.record.uid, error=str(error))
