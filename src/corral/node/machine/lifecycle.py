"""The life of one machine: prepare, start, run, stop, and nothing left behind.

Every step can be taken again: the manager may be killed between any two of them, and the machine
of the next manager, which reads the record and looks for what runs, goes on from there.  The order
of the steps sees to it:

- the record names the machine's owner before there is anything to be owned;
- the guest executes nothing before the record says that it has been started, so a guest that was
  once started is never started again;
- QEMU stays when its guest has ended, until the outcome is on record;
- that it has ended is on record only when nothing of it runs any more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from corral.aio import Background, Signal, until, wait_at_most
from corral.api.kinds.vmi.saved_memory import restores_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change, Guest, GuestError, HungError, Hypervisor, StuckError
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import Boots, Slot
from corral.node.machine.memory.restore import Restoring
from corral.node.machine.memory.save import Saving
from corral.node.machine.resource_limits import Fence
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS, Prepare, Starting, Users
from corral.node.network.attachment import NO_SANDBOX, Networking
from corral.node.state import events, machine_record as records
from corral.node.state.events import Voice
from corral.node.state.facts import Facts, State, doomed, end_type, fold, never_started, not_up
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import Chronicle, Steps
from corral.node.storage.saved_memory_claims import SavedMemoryClaims

POWER_BUTTON_SECONDS = 5.0
"""How long after the power button was pressed it is pressed again (virt-handler)."""
BOOTING_BUTTON_SECONDS = 1.0
"""The same while a guest boots: its kernel hears the button before anybody there obeys it."""
_LONGEST_SILENCE_SECONDS = 60.0
"""How long nobody asks whether QEMU can be managed again, at most."""
_INTRODUCTIONS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""When a guest's agent is asked who it is, until it knows its addresses."""
_REST_SECONDS = 10.0
"""For so long nobody is asked again, whatever the guest does: what it answers is written down."""
_NEWS = frozenset({Change.AGENT_CONNECTED, Change.RESUMED})
"""After these a guest may have other addresses than before."""

log = structlog.get_logger()

Beside = Callable[["Machine", Background], None]
"""Starts what is to go on beside the guest, such as what finds out how it is."""


class Machine:
    """One machine of this node.  ``facts`` is what is known of it."""

    def __init__(
        self,
        record: Record,
        directory: Path,
        *,
        hypervisor: Hypervisor,
        networking: Networking,
        boots: Boots,
        voice: Voice,
        steps: Steps,
        beside: Beside,
        saved_memories: SavedMemoryClaims | None = None,
        limits: Limits | None = None,
        users: Users = lambda _vmi, _volume: "",
    ) -> None:
        self._chronicle = Chronicle(record, directory, voice=voice, step=steps)
        self._hypervisor = hypervisor
        self._networking = networking
        self._voice = voice
        self._steps = steps
        self._beside = beside
        self._saving = Saving(self._chronicle, saved_memories)
        self._restoring = Restoring(self._chronicle, saved_memories)
        self._hastened = Signal()
        self._fence = Fence(self._chronicle, limits, self._hastened.set)
        self._starting = Starting(
            self._chronicle,
            hypervisor=hypervisor,
            networking=networking,
            boots=boots,
            restoring=self._restoring,
            fence=self._fence,
            born=self._born,
            users=users,
        )
        self._guest: Guest | None = None
        self._up = Signal()
        self._due = Signal()
        self._stop = Signal()
        self._deadline = float("inf")
        self._stop_in_order = False
        self._slot: Slot | None = None
        self._boots = False

    # -- what is known, and what is on record

    @property
    def record(self) -> Record:
        return self._chronicle.record

    @property
    def directory(self) -> Path:
        return self._chronicle.directory

    @property
    def facts(self) -> Facts:
        return self._chronicle.facts

    def learn(self, facts: Facts) -> None:
        self._chronicle.learn(facts)

    # -- what others ask of it

    def stop(self, seconds: float, *, in_order: bool = False) -> None:
        """End within so many seconds, at once if that is none: the earliest such wish counts.

        ``in_order``: it is no failure if the guest does not shut down by itself until then.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        if deadline < self._deadline:
            self._deadline, self._stop_in_order = deadline, in_order
            self._hastened.set()
        if not self._stop.is_set():
            self._stop.set()
            self._saving.wish("")
            if self._guest is not None and seconds > 0:
                self._voice.of_instance("Normal", "ShuttingDown", "Signaled Graceful Shutdown")

    @property
    def stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stop.is_set()

    def condemn(self, why: str, seconds: float) -> None:
        """Its guest does not live: it is to end within so many seconds, and has failed then."""
        self._chronicle.condemn(unhealthy=why)
        self.stop(seconds)

    def evict(self, why: str) -> None:
        """It has to go at once, for its node's sake, and has failed then."""
        self._chronicle.condemn(evicted=why)
        self.stop(0)

    @property
    def guest(self) -> Guest:
        """What runs.  Raises GuestError while nothing does."""
        if self._guest is None or self.facts.ended:
            raise GuestError("the machine does not run")
        return self._guest

    def note_silence(self, why: str) -> None:
        """QEMU hangs; or it answers again, where there is no why."""
        self._chronicle.note_silence(why, hangs=bool(why))

    def save(self, claim: str, seconds: float, *, in_order: bool) -> None:
        """Save its memory to a claim, which ends it, as soon as that has room; no claim is no wish.

        Where it fails on the way it is stopped instead.
        """
        if not self._stop.is_set():
            self._saving.wish(claim, lambda: self.stop(seconds, in_order=in_order))

    def retry(self) -> None:
        """Let it be started now if it could not be before: what was missing may be there."""
        self._starting.retry()

    def ask(self) -> None:
        """Let it ask its guest who that is, and at which addresses: they may be others by now."""
        self._due.set()

    def pulling(self, image: str) -> None:
        """An image of it is being fetched."""
        self.learn(replace(self.facts, state=State.PULLING))
        self._voice.of_pod("Normal", "Pulling", f'Pulling image "{image}"')

    def pulled(self, image: str, seconds: float) -> None:
        self._voice.of_pod(
            "Normal", "Pulled", f'Successfully pulled image "{image}" in {seconds:.3f}s'
        )

    async def erase(self) -> None:
        """Remove its directory."""
        await asyncio.to_thread(records.erase, self.directory)
        self._steps("erased")

    # -- its life

    async def run(self, vmi: VirtualMachineInstance | None, prepare: Prepare) -> None:
        """Live until the end.  Cancelled, it lets go of its guest, which runs on.

        ``vmi`` is None where the instance no longer exists: what runs is taken over to be ended.
        """
        if self.record.stage is Stage.ENDED:
            await self._fence.take_down()
            self.learn(replace(self.facts, state=State.ENDED))
            return
        if self.facts.evicted:  # its manager was killed over it
            self.stop(0)
        try:
            if self.facts.outcome is not None:  # decided, but its manager was killed over it
                await self._put_out()
            else:
                await self._look_for_guest()
                if vmi is not None:
                    await self._begin(vmi, prepare)
            self._saving.recall()
            while self._guest is not None:
                await self._attend(self._guest, vmi, prepare)
                await self._release()
                await self._look_for_guest()
                if vmi is not None and self._guest is not None:
                    await self._fence.mend(self._guest)
            facts = never_started(self.facts) if self._unstarted else self.facts
            await self._end(await self._fence.verdict(facts))
        finally:
            self._fence.release()
            await self._release()

    async def _begin(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        """Bring it up, or go on where an earlier manager was."""
        if self._guest is not None and self._unstarted and restores_from(vmi):
            await self._put_out()  # nobody knows whether it has its memory
            await self._release()
        if self._guest is None:
            self._restoring.again()
            if self._unstarted:
                await until(self._stop, self._starting.run(vmi, prepare))
                # The wish to stop may have come between QEMU's start and ours to know of it.
                await self._look_for_guest()
            return
        await self._rejoin(self._guest, vmi)
        await self._fence.mend(self._guest)
        if self.record.stage is Stage.WAKING:
            await self._restoring.take_up(self._guest)
        elif self._guest.halted:
            await self._starting.let_go(self._guest, vmi)

    async def _release(self) -> None:
        if self._guest is not None:
            await self._guest.release()
            self._guest = None

    async def _look_for_guest(self) -> None:
        """Find what runs.  What does not answer is waited for, since its guest may be well.

        It is ended where that loses nothing, because its guest has never run, or where it is to
        end anyway and its time is up.
        """
        pause = FIRST_BACK_OFF_SECONDS
        while self._guest is None:
            await self._fence.wake()
            try:
                self._guest = await self._hypervisor.find(self.directory)
            except GuestError as error:
                left = self._deadline - asyncio.get_running_loop().time()
                if self._fence.judge() or self._unstarted or left <= 0:
                    if not self._unstarted:
                        self._chronicle.decide(doomed(self.facts, in_order=self._stop_in_order))
                    await self._put_out()
                    return
                self._chronicle.note_silence(str(error), hangs=isinstance(error, HungError))
                self._hastened.clear()
                await wait_at_most(self._hastened, min(pause, left))
                pause = min(pause * 2, _LONGEST_SILENCE_SECONDS)
            else:
                self._chronicle.note_silence("", hangs=False)
                return

    async def _put_out(self) -> None:
        """End what runs, whether it can be managed or not."""
        await self._fence.wake()
        await self._fence.lift()
        while True:
            try:
                await self._hypervisor.end(self.directory)
            except StuckError as error:
                self._chronicle.tell_stuck(str(error))
                await asyncio.sleep(FIRST_BACK_OFF_SECONDS)
            else:
                return

    @property
    def _unstarted(self) -> bool:
        return self.record.stage is Stage.DEFINED

    async def _rejoin(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        if wrong := await self._networking.adopt(vmi, self.record.addresses, guest.pid):
            self._voice.of_pod("Warning", NO_SANDBOX, wrong)

    def _born(self, guest: Guest, slot: Slot) -> None:
        self._guest, self._slot, self._boots = guest, slot, True

    # -- with a guest

    async def _attend(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        """Follow a guest to its end, or until it can no longer be reached."""
        async with Background() as tasks:
            tasks.when(self._stop, self._shut_down, guest, name="shut down")
            tasks.start(guest.watch(), name="watch")
            tasks.whenever(self._due, self._answer, guest, name="ask")
            self._beside(self, tasks)
            self._saving.attend(tasks, guest, vmi, prepare)
            self._restoring.attend(tasks, guest, vmi)
            self._fence.guard(tasks, guest)
            if self._slot is None:  # its last manager may have told it to step back
                self._fence.step_back(guest, False)  # noqa: FBT003
            else:
                self._slot.boots(partial(self._fence.step_back, guest))
                tasks.start(self._hold_slot(guest, self._slot), name="boot")
            async for change in guest.changes():
                if change is Change.GONE:
                    continue  # the last one: what it was is found out when nothing runs any more
                facts = fold(self.facts, change)
                if change is Change.AGENT_CONNECTED:
                    self._up.set()
                if change in _NEWS:
                    self.ask()
                if change in events.EXPIRED:
                    events.tell_watchdog(vmi, self._voice)
                if change is Change.PAUSED_BY_IO_ERROR:
                    tasks.start(events.tell_io_errors(guest, vmi, self._voice), name="io errors")
                self._chronicle.decide(facts)
                if facts.outcome is not None:
                    await self._fence.destroy(guest)
        self._slot = None

    async def _hold_slot(self, guest: Guest, slot: Slot) -> None:
        await slot.hold_until(guest.booted(self._fence.processors), self._up.wait())
        self._boots = False
        self._steps("booted")

    async def _answer(self, guest: Guest) -> None:
        """Somebody wants to know who the guest is."""
        if self.facts.agent_connected:
            await self._introduce(guest)
            await asyncio.sleep(_REST_SECONDS)

    async def _introduce(self, guest: Guest) -> None:
        for pause in _INTRODUCTIONS:
            await asyncio.sleep(pause)
            if not self.facts.agent_connected:
                return
            introduction = await guest.introduce()
            if introduction is not None and introduction != self.facts.introduction:
                self.learn(replace(self.facts, introduction=introduction))
            if introduction is not None and any(one.addresses for one in introduction.interfaces):
                return

    async def _shut_down(self, guest: Guest) -> None:
        """It was told to stop: the power button until the time is up, then the end.

        That comes at once where the guest's system has not come up, and does not hear the button.
        """
        now, heard = asyncio.get_running_loop().time, False
        while (left := self._deadline - now()) > 0 and self._executes(guest):
            if self._saving.idle.is_set() and not self.facts.silent:
                agent = self.facts.agent_connected
                heard = heard or agent or await guest.hears_power_button()
                if not heard:
                    self._chronicle.decide(not_up(self.facts))
                    break
                await guest.power_down()
            self._hastened.clear()
            pause = BOOTING_BUTTON_SECONDS if self._boots else POWER_BUTTON_SECONDS
            await wait_at_most(self._hastened, min(left, pause))
        if heard and self._executes(guest):  # it had its time
            self._voice.of_instance("Normal", "Deleted", "Signaled Deletion")
        self._chronicle.decide(doomed(self.facts, in_order=self._stop_in_order))
        await self._fence.destroy(guest)

    def _executes(self, guest: Guest) -> bool:
        """Whether the guest could shut down: it has been let go."""
        return not guest.halted and self.record.stage is not Stage.WAKING

    # -- the end

    async def _end(self, facts: Facts) -> None:
        facts = fold(facts, Change.GONE)
        self._chronicle.close(facts)
        await self._fence.take_down()
        if facts.evicted:
            await asyncio.to_thread(records.strip, self.directory)
        self._networking.release(self.record.uid)
        self.learn(facts)
        event_type = end_type(facts, told=self._stop.is_set())
        self._voice.of_instance(event_type, "Stopped", facts.message)
