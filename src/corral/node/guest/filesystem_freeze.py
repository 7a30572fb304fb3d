"""Freezes the file systems of guests, for no longer than requested."""

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

RECORD = "frozen.json"
RETRY_SECONDS = 30.0
LONGEST_RETRY_SECONDS = 300.0
"""Pauses between failed attempts to thaw a guest, doubled each time."""
SHUTDOWN_SECONDS = 5.0
"""Longest thaw when the manager stops."""

log = structlog.get_logger()


class Record(msgspec.Struct, frozen=True):
    """The time when a guest is thawed, in seconds since the epoch; in the machine's directory."""

    thaw_at: float


_NOT_CONNECTED = (
    "unexpected return code 400 (400 Bad Request), message: server error. command Freeze failed: "
    "\"LibvirtError(Code=86, Domain=10, Message='Guest agent is not responding: QEMU guest agent "
    "is not connected')\""
)
"""The message of KubeVirt's virt-handler, which clients match."""


class Freezer:
    """Freezes guests, and thaws them in time.

    When the manager stops it thaws guests that are frozen for a limited time, since nothing would
    do so later; after a kill the next manager thaws them, in time or late.
    """

    def __init__(self) -> None:
        self._tasks: Background | None = None
        self._timers: dict[str, asyncio.Event] = {}
        self._locks: WeakKeyDictionary[Machine, asyncio.Lock] = WeakKeyDictionary()

    async def run(self) -> None:
        """Thaw guests in time, until cancelled."""
        async with Background() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def resume_timer(self, machine: Machine) -> None:
        """Resume the timer that an earlier manager has recorded for a machine."""
        record = files.read_json(machine.directory / RECORD, Record)
        if record is not None and machine.record.uid not in self._timers:
            self._start_timer(machine, max(0.0, record.thaw_at - time.time()))

    async def freeze(self, machine: Machine, seconds: float) -> None:
        """Freeze for at most so many seconds; without a limit if 0.  Raises GuestError.

        The timer runs whatever the agent answers: a guest whose answer is late may be frozen, and
        counts as frozen until it is thawed.  For the same reason one without a limit is thawed if
        its answer failed.
        """
        async with self._lock(machine):
            agent, before = machine.guest.agent, machine.facts.frozen
            if not machine.facts.agent_connected:
                raise GuestError(_NOT_CONNECTED)
            if seconds:
                self._schedule(machine, seconds)
            machine.set_facts(replace(machine.facts, frozen=True))
            try:
                await agent.freeze()
            except GuestError as error:
                if isinstance(error, RefusedError):
                    machine.set_facts(replace(machine.facts, frozen=before))
                if not seconds and not before:
                    self._schedule(machine, RETRY_SECONDS)
                raise
            if not seconds:
                self._cancel_timer(machine)

    async def thaw(self, machine: Machine) -> None:
        """Thaw a guest.  Raises GuestError."""
        async with self._lock(machine):
            await self._thaw(machine)

    def _lock(self, machine: Machine) -> asyncio.Lock:
        """Return a machine's lock, so that a thaw does not cancel the timer of the next freeze."""
        return self._locks.setdefault(machine, asyncio.Lock())

    async def _thaw(self, machine: Machine) -> None:
        await machine.guest.agent.thaw()
        self._cancel_timer(machine)
        machine.set_facts(replace(machine.facts, frozen=False))

    def _schedule(self, machine: Machine, seconds: float) -> None:
        """Record and start the timer of a thaw.  Raises GuestError."""
        try:
            record = msgspec.json.encode(Record(time.time() + seconds))
            files.replace(machine.directory / RECORD, record)
        except OSError as error:
            raise GuestError(f"the time of the thaw cannot be recorded: {error}") from error
        self._start_timer(machine, seconds)

    def _start_timer(self, machine: Machine, seconds: float) -> None:
        uid = machine.record.uid
        if (earlier := self._timers.pop(uid, None)) is not None:
            earlier.set()
        if self._tasks is not None:
            thawed = self._timers[uid] = asyncio.Event()
            self._tasks.start(self._thaw_later(machine, thawed, seconds), name=f"thaw {uid}")

    def _cancel_timer(self, machine: Machine) -> None:
        if (thawed := self._timers.pop(machine.record.uid, None)) is not None:
            thawed.set()
        with suppress(OSError):
            (machine.directory / RECORD).unlink()

    async def _thaw_later(self, machine: Machine, thawed: asyncio.Event, seconds: float) -> None:
        """Try to thaw until the guest is thawed, by anybody, or has ended."""
        pause = RETRY_SECONDS
        try:
            while not thawed.is_set():
                await wait_at_most(thawed, seconds)
                await self._try_to_thaw(machine, thawed)
                seconds, pause = pause, min(pause * 2, LONGEST_RETRY_SECONDS)
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_SECONDS):
                    await self._try_to_thaw(machine, thawed)
            raise

    async def _try_to_thaw(self, machine: Machine, thawed: asyncio.Event) -> None:
        async with self._lock(machine):
            if thawed.is_set():
                return
            if machine.facts.ended:
                self._cancel_timer(machine)
                return
            try:
                await self._thaw(machine)
            except GuestError as error:
                log.warning("a guest was not thawed", uid=machine.record.uid, error=str(error))
