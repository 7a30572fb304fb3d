"""The life of one machine: prepare, start, run, stop, clean up.

Every step can be repeated: the manager may be killed between any two of them, and the next
manager, which reads the record and finds the running QEMU, resumes there.  This follows from the
order of the steps:

- the record names the machine's owner before any resource is allocated;
- the guest executes nothing before the record says that it has been started, so a guest that was
  once started is never started again;
- QEMU stays after its guest has ended, until the outcome is recorded;
- the stage Ended is recorded only when nothing of the machine runs any more.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from corral.aio import Background, Signal, run_until, wait_at_most
from corral.api.kinds.vmi.saved_memory import restores_from, starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.fencing.watchdog import FENCED
from corral.node.hypervisor import (
    Change,
    Drive,
    Guest,
    GuestError,
    HungError,
    Hypervisor,
    StartError,
    StuckError,
)
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import BootSlots, Slot
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.memory.checkpoint import MemoryCheckpoint
from corral.node.machine.memory.fork import Checkpoints, MemoryFork
from corral.node.machine.memory.restore import MemoryRestore
from corral.node.machine.memory.save import MemorySave
from corral.node.machine.migration.arrival import Arrival
from corral.node.machine.migration.departure import Departure
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.machine.resource_limits import MachineLimits
from corral.node.machine.spare_pause import SparePause
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS, Prepare, Startup, Users
from corral.node.network.attachment import NO_SANDBOX, Networking
from corral.node.state import events, machine_record as records
from corral.node.state.events import MachineEvents
from corral.node.state.facts import (
    FENCED as FENCED_MESSAGE,
    Facts,
    State,
    destroyed,
    end_type,
    fold,
    keeps_disks,
    migrated,
    never_started,
    not_booted,
)
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import MachineState, OnStep
from corral.node.storage.saved_memory_claims import SavedMemoryClaims

POWER_BUTTON_SECONDS = 5.0
"""Time after which the power button is pressed again (as virt-handler does)."""
BOOTING_BUTTON_SECONDS = 1.0
"""The same while a guest boots: its kernel gets the event before a service there handles it."""
_LONGEST_RETRY_SECONDS = 60.0
"""The longest pause between two attempts to manage a QEMU that does not answer."""
_SYNC_SECONDS = 10.0
"""How long requests wait for what an earlier agent has left."""
_GUEST_INFO_RETRY_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before queries of a guest's agent, until it reports addresses."""
_GUEST_INFO_PAUSE_SECONDS = 10.0
"""The least time between two such series, since each result is written to the API."""
_MAY_CHANGE_ADDRESSES = frozenset({Change.AGENT_CONNECTED, Change.RESUMED})
"""Changes after which a guest may have other addresses than before."""

log = structlog.get_logger()

StartGuestTasks = Callable[["Machine", Background], None]
"""Starts the tasks that run beside the guest, such as its probes."""


class Machine:
    """One machine of this node.  ``facts`` is its observed state."""

    def __init__(
        self,
        record: Record,
        directory: Path,
        *,
        hypervisor: Hypervisor,
        networking: Networking,
        boot_slots: BootSlots,
        recorder: MachineEvents,
        on_step: OnStep,
        start_guest_tasks: StartGuestTasks,
        saved_memories: SavedMemoryClaims | None = None,
        checkpoints: Checkpoints | None = None,
        limits: Limits | None = None,
        targets: MigrationTargets | None = None,
        users: Users = lambda _vmi, _volume: "",
        require: Callable[[Record], None] = lambda _record: None,
        leases: MachineLeases | None = None,
    ) -> None:
        self._state = MachineState(record, directory, recorder=recorder, step=on_step)
        self._hypervisor = hypervisor
        self._networking = networking
        self._recorder = recorder
        self._on_step = on_step
        self._start_guest_tasks = start_guest_tasks
        self._require = require
        self._leases = leases or MachineLeases()
        self._save = MemorySave(self._state, saved_memories)
        self._restore = MemoryRestore(self._state, saved_memories)
        self._fork = MemoryFork(self._state, checkpoints)
        self._recheck = Signal()
        self._limits = MachineLimits(self._state, limits, self._recheck.set)
        self._startup = Startup(
            self._state,
            hypervisor=hypervisor,
            networking=networking,
            boot_slots=boot_slots,
            restore=self._restore,
            fork=self._fork,
            limits=self._limits,
            started=self._on_started,
            users=users,
            require=require,
            leases=self._leases,
        )
        targets = self._targets = targets if targets is not None else MigrationTargets()
        self.departure = Departure(self._state, targets.reach, networking, self._leases)
        self.checkpoint = MemoryCheckpoint(self._state, hypervisor.split, self._recheck.set)
        self.arrival = Arrival(
            self._state,
            hypervisor=hypervisor,
            networking=networking,
            targets=targets,
            limits=self._limits,
            leases=self._leases,
            arrived=self._on_arrived,
            require=require,
        )
        self._guest: Guest | None = None
        self.agent_up = Signal()
        """Set once the guest agent has connected."""
        # In other stages an earlier agent may have started a guest.
        self._synced = Signal(is_set=record.stage in {Stage.DEFINED, Stage.ENDED})
        self.record_fork = self._state.record_fork
        self.until_identified = self._state.until_identified
        self._guest_info_due = Signal()
        self._stop = Signal()
        self.spare_pause = SparePause(self._state, self._stop, self.synced)
        self._bounds = record.bounds
        self._bounds_changed = Signal()
        self._deadline = float("inf")
        self._stop_in_order = False
        self._slot: Slot | None = None
        self.booting = False

    # -- its state

    @property
    def record(self) -> Record:
        return self._state.record

    @property
    def directory(self) -> Path:
        return self._state.directory

    @property
    def facts(self) -> Facts:
        return self._state.facts

    def set_facts(self, facts: Facts) -> None:
        self._state.set_facts(facts)

    # -- requests

    def stop(self, seconds: float, *, in_order: bool = False) -> None:
        """Stop within so many seconds, at once with 0; the earliest such deadline counts.

        ``in_order``: a guest that does not shut down by itself until then is no failure.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        if deadline < self._deadline:
            self._deadline, self._stop_in_order = deadline, in_order
            self._recheck.set()
        if not self._stop.is_set():
            self._stop.set()
            self._save.request("")
            self.departure.cancel()
            self.checkpoint.cancel()
            if self._guest is not None and seconds > 0:
                self._recorder.vmi_event("Normal", "ShuttingDown", "Signaled Graceful Shutdown")

    @property
    def stopping(self) -> bool:
        """True if it was requested to stop."""
        return self._stop.is_set()

    def stop_unhealthy(self, why: str, seconds: float) -> None:
        """Stop, since the liveness probe failed: the outcome will be Failed."""
        self._state.record_cause(unhealthy=why)
        self.stop(seconds)

    def evict(self, why: str) -> None:
        """Stop at once, since the node is short of resources: the outcome will be Failed."""
        self._state.record_cause(evicted=why)
        self.stop(0)

    def fence(self) -> None:
        """Stop at once, since the cluster may run another one: the outcome will be Failed.

        A machine whose guest has not been started yet waits instead (``ExclusiveStarts``).
        """
        runs_nothing = (Stage.DEFINED, Stage.SENT, Stage.ENDED)
        if self.record.stage not in runs_nothing and not self.facts.fenced:
            self._state.record_cause(fenced=FENCED_MESSAGE)
            self.stop(0)

    def mark_exclusive(self) -> None:
        """Record that two of it must never run."""
        if not self.record.exclusive and not self.facts.ended:
            self._state.mark_exclusive()

    @property
    def guest(self) -> Guest:
        """The running guest.  Raises GuestError while there is none."""
        if self._guest is None or self.facts.ended:
            raise GuestError("the machine does not run")
        return self._guest

    async def synced(self) -> None:
        """Wait until a guest that an earlier agent has left is found, or does not answer."""
        await wait_at_most(self._synced, _SYNC_SECONDS)

    async def pause(self) -> None:
        """Stop the vCPUs, until ``unpause``.  Raises GuestError."""
        async with self._state.vcpus:
            await self.guest.pause()
            self.spare_pause.leave_to_user()

    async def unpause(self) -> None:
        """Run the vCPUs.  Raises GuestError."""
        async with self._state.vcpus:
            await self.guest.resume()

    def report_monitor(self, why: str) -> None:
        """Report why QEMU hangs; an empty ``why``: it answers again."""
        self._state.report_monitor(why, hangs=bool(why))

    def save(self, claim: str, seconds: float, *, in_order: bool) -> None:
        """Save its memory to a claim, which ends it, once there is room; an empty claim cancels.

        If saving fails, the machine is stopped instead.
        """
        if not self._stop.is_set():
            self._save.request(claim, lambda: self.stop(seconds, in_order=in_order))

    def set_bounds(self, bounds: Bounds) -> None:
        """Change the resource limits to those of its pod, which may have been resized."""
        # Also those of the record: others may have been requested meanwhile.
        if (bounds != self.record.bounds or bounds != self._bounds) and not self.facts.ended:
            self._bounds = bounds
            self._bounds_changed.set()

    def retry(self) -> None:
        """Retry a start that has failed now: what was missing may be there."""
        self._startup.retry()

    def refresh_guest_info(self) -> None:
        """Query the guest's agent for its OS and addresses, which may have changed."""
        self._guest_info_due.set()

    def pulling(self, image: str, progress: str = "") -> None:
        """Report that an image is being pulled; ``progress`` follows its name."""
        self.set_facts(replace(self.facts, state=State.PULLING))
        self._recorder.pod_event("Normal", "Pulling", f'Pulling image "{image}"{progress}')

    def pulled(self, image: str, seconds: float) -> None:
        self._recorder.pod_event(
            "Normal", "Pulled", f'Successfully pulled image "{image}" in {seconds:.3f}s'
        )

    async def lease(self, drives: Iterable[Drive]) -> None:
        """Acquire the leases of drives that are to be plugged in.  Raises StartError."""
        await self._leases.acquire(self.record.uid, drives, plugged=True)

    async def release_unplugged(self, present: Collection[str]) -> None:
        """Release the leases of drives that were unplugged; ``present``: the plugged volumes."""
        await self._leases.release_unplugged(self.record.uid, present)

    async def erase(self) -> None:
        """Remove the machine's directory."""
        await asyncio.to_thread(records.erase, self.directory)
        self._on_step("erased")

    # -- its life

    async def run(self, vmi: VirtualMachineInstance | None, prepare: Prepare) -> None:
        """Live until the end.  When cancelled, disconnect from the guest, which runs on.

        ``vmi`` is None if the VMI no longer exists: a machine that runs is then adopted to be
        ended.
        """
        if self.record.stage is Stage.ENDED:
            await self._limits.remove()
            self.set_facts(replace(self.facts, state=State.ENDED))
            return
        if self.facts.evicted or self.facts.fenced:  # a manager was killed before it was gone
            self.stop(0)
        if self.facts.fenced:
            vmi = None  # nothing of it is to be resumed any more
        try:
            if self.facts.outcome is not None:  # recorded, but the manager was killed
                await self._kill()
            else:
                await self._find_guest()
                if vmi is not None:
                    await self._bring_up(vmi, prepare)
            self._save.check_sealed()
            while self._guest is not None:
                await self._follow(self._guest, vmi, prepare)
                await self._release()
                await self._find_guest()
                if vmi is not None and self._guest is not None:
                    await self._limits.reapply(self._guest)
            facts = never_started(self.facts) if self._unstarted else self.facts
            await self._end(await self._limits.add_outcome(facts))
        finally:
            self._limits.release()
            await self._release()

    async def _bring_up(self, vmi: VirtualMachineInstance, prepare: Prepare) -> None:
        """Start the guest, or resume where an earlier manager was."""
        if self.record.arrival and self._guest is not None and not self.record.started_at:
            await self._adopt_network(self._guest, vmi)
            await run_until(self._stop, self.arrival.resume(self._guest, prepare))
            return
        if self._guest is not None and self._unstarted and self._must_replace_qemu(vmi):
            await self._kill()
            await self._release()
        if self._guest is None and self._unstarted and self.record.arrival:
            await run_until(self._stop, self.arrival.run(vmi, prepare))
            await self._find_guest()
            return
        if self._guest is None:
            self._restore.reset_interrupted()
            if self._unstarted:
                await run_until(self._stop, self._startup.run(vmi, prepare))
                # QEMU may have been started just before the stop, so it is not known here yet.
                await self._find_guest()
            return
        await self._adopt_network(self._guest, vmi)
        await self._limits.reapply(self._guest)
        if self.record.stage is Stage.WAKING:
            source = self._fork if self.record.fork_of else self._restore
            await source.resume_interrupted(self._guest)
        elif self._guest.halted:
            await self._startup.run_guest(self._guest, vmi)

    def _must_replace_qemu(self, vmi: VirtualMachineInstance) -> bool:
        """Report whether to kill a QEMU that an earlier manager left with an unstarted guest.

        The machine may not run now, or QEMU may have loaded the VMI's saved memory only in part.
        """
        try:
            self._require(self.record)
        except StartError:
            return True
        return bool(restores_from(vmi) or starts_from(vmi))

    async def _release(self) -> None:
        if self._guest is not None:
            await self._guest.release()
            self._guest = None

    async def _find_guest(self) -> None:
        """Find the running guest.  Wait for one that does not answer, since it may be well.

        It is killed where that loses nothing, because its guest has never run, or where it is to be
        stopped anyway and its deadline has passed.
        """
        pause = FIRST_BACK_OFF_SECONDS
        while self._guest is None:
            await self._limits.wake()
            try:
                self._guest = await self._hypervisor.find(self.directory)
            except GuestError as error:
                left = self._deadline - asyncio.get_running_loop().time()
                if self._limits.record_exceeded() or self._unstarted or left <= 0:
                    if not self._unstarted:
                        self._state.record_outcome(
                            destroyed(self.facts, in_order=self._stop_in_order)
                        )
                    await self._kill()
                    return
                self._state.report_monitor(str(error), hangs=isinstance(error, HungError))
                self._synced.set()
                self._recheck.clear()
                await wait_at_most(self._recheck, min(pause, left))
                pause = min(pause * 2, _LONGEST_RETRY_SECONDS)
            else:
                self._state.report_monitor("", hangs=False)
                if self._guest is None:
                    self._synced.set()
                return

    async def _kill(self) -> None:
        """Kill the QEMU process, whether it can be managed or not; retry until it has ended."""
        await self._limits.wake()
        await self._limits.lift()
        while True:
            try:
                await self._hypervisor.end(self.directory)
            except StuckError as error:
                self._state.report_stuck(str(error))
                await asyncio.sleep(FIRST_BACK_OFF_SECONDS)
            else:
                return

    @property
    def _unstarted(self) -> bool:
        return self.record.stage in {Stage.DEFINED, Stage.RECEIVING}

    async def _adopt_network(self, guest: Guest, vmi: VirtualMachineInstance) -> None:
        record = self.record
        wrong = await self._networking.adopt(
            record.id,
            vmi,
            record.addresses,
            guest.pid,
            held=record.stage in {Stage.RECEIVING, Stage.SENT},
        )
        if wrong:
            self._recorder.pod_event("Warning", NO_SANDBOX, wrong)

    def _on_started(self, guest: Guest, slot: Slot) -> None:
        self._guest, self._slot, self.booting = guest, slot, True

    def _on_arrived(self, guest: Guest) -> None:
        self._guest = guest

    # -- with a running guest

    async def _follow(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        """Follow a guest to its end, or until the connection to it is lost."""
        if not self.facts.elsewhere:
            self._targets.directories[self.record.uid] = self.directory
        try:
            await self._follow_changes(guest, vmi, prepare)
        finally:
            await self.checkpoint.finish(guest)
        self._slot = None

    async def _follow_changes(
        self, guest: Guest, vmi: VirtualMachineInstance | None, prepare: Prepare
    ) -> None:
        async with Background() as tasks:
            tasks.when(self._stop, self._shut_down, guest, name="shut down")
            tasks.start(guest.watch(), name="watch")
            tasks.whenever(
                self._guest_info_due, self._refresh_guest_info, guest, name="refresh guest info"
            )
            tasks.whenever(self._bounds_changed, self._change_limits, guest, name="limits")
            self._start_guest_tasks(self, tasks)
            self._save.start_tasks(tasks, guest, vmi, prepare)
            self._restore.start_tasks(tasks, guest, vmi)
            self.departure.start_tasks(tasks, guest, vmi, prepare)
            tasks.start(self.checkpoint.keep_going(guest), name="go on")
            self._limits.guard(tasks, guest)
            if self._slot is None:  # an earlier manager may have lowered its priority for its boot
                self._limits.lower_priority(guest, False)  # noqa: FBT003
            else:
                self._slot.start_boot(partial(self._limits.lower_priority, guest))
                tasks.start(self._wait_for_boot(guest, self._slot), name="boot")
            async for change in guest.changes():
                if change is Change.GONE:
                    continue  # the last change: the outcome is set once nothing runs any more
                facts = fold(self.facts, change)
                if change is Change.AGENT_CONNECTED:
                    self.agent_up.set()
                if change is Change.SYNCED:
                    self._synced.set()
                if change in _MAY_CHANGE_ADDRESSES:
                    self.refresh_guest_info()
                if change in events.EXPIRED:
                    events.report_watchdog(vmi, self._recorder)
                if change is Change.PAUSED_BY_IO_ERROR:
                    tasks.start(
                        events.report_io_errors(guest, vmi, self._recorder), name="io errors"
                    )
                self._state.record_outcome(facts)
                if facts.outcome is not None:
                    await self._limits.destroy(guest)

    async def _change_limits(self, guest: Guest) -> None:
        await self._limits.change(self._bounds, guest)

    async def _wait_for_boot(self, guest: Guest, slot: Slot) -> None:
        agent_is_free = self._state.until_agent_is_free(self.agent_up)
        await slot.release_at(guest.booted(self._limits.processors), agent_is_free)
        self.booting = False
        self._on_step("booted")

    async def _refresh_guest_info(self, guest: Guest) -> None:
        """Query the guest for its addresses, if there is an agent."""
        await self.until_identified()
        if self.facts.agent_connected:
            await self._query_guest_info(guest)
            await asyncio.sleep(_GUEST_INFO_PAUSE_SECONDS)

    async def _query_guest_info(self, guest: Guest) -> None:
        for pause in _GUEST_INFO_RETRY_SECONDS:
            await asyncio.sleep(pause)
            if not self.facts.agent_connected or self.facts.paused:
                return  # it is queried once it goes on
            guest_info = await guest.query_guest_info()
            if guest_info is not None and guest_info != self.facts.guest_info:
                self.set_facts(replace(self.facts, guest_info=guest_info))
            if guest_info is not None and any(one.addresses for one in guest_info.interfaces):
                return

    async def _shut_down(self, guest: Guest) -> None:
        """Press the power button until the deadline, then destroy the guest.

        A guest that has not booted, so that nothing handles the button, is destroyed at once.
        """
        now, listens = asyncio.get_running_loop().time, False
        while (left := self._deadline - now()) > 0 and self._executes(guest):
            busy = (self._save, self.departure, self.checkpoint)
            if all(each.idle.is_set() for each in busy) and not self.facts.silent:
                agent = self.facts.agent_connected
                listens = listens or agent or await guest.listens_to_power_button()
                if not listens:
                    self._state.record_outcome(not_booted(self.facts))
                    break
                await guest.power_down()
            self._recheck.clear()
            pause = BOOTING_BUTTON_SECONDS if self.booting else POWER_BUTTON_SECONDS
            await wait_at_most(self._recheck, min(left, pause))
        if listens and self._executes(guest):  # it did not shut down in time
            self._recorder.vmi_event("Normal", "Deleted", "Signaled Deletion")
        if self.record.stage is Stage.SENT:
            self.departure.report_sent()
            self._state.record_outcome(migrated(self.facts))
        else:
            self._state.record_outcome(destroyed(self.facts, in_order=self._stop_in_order))
        await self._limits.destroy(guest)

    def _executes(self, guest: Guest) -> bool:
        """Report whether the guest has been started, so that it could shut down."""
        stages = {Stage.WAKING, Stage.RECEIVING, Stage.SENT}
        arrives = self.record.stage is Stage.ARRIVING and guest.received
        return not guest.halted and not arrives and self.record.stage not in stages

    # -- the end

    @property
    def _has_common_leases(self) -> bool:
        """Report whether source and target of the migration run on one host and share the leases.

        A target without a recorded source counts as sharing: only the source may release.
        """
        node = self.record.departure_node or self.arrival.source
        return not node or self._targets.is_own(node)

    async def _end(self, facts: Facts) -> None:
        if (self.directory / FENCED).exists():  # by the watchdog
            facts = replace(facts, fenced=FENCED_MESSAGE)
        facts = fold(facts, Change.GONE)
        if facts.elsewhere and self._has_common_leases:
            self._leases.forget(self.record.uid)
        elif self.record.arrival and facts.never_ran:
            self._leases.leave(self.record.uid)
            await self._networking.give_back(self.record.id, self.record.addresses)
        else:
            await self._leases.release(self.record.uid)  # before others may start the VMI
        if not keeps_disks(facts):  # before Ended is recorded, after which nobody comes back
            await asyncio.to_thread(records.strip, self.directory)
        self._state.record_end(facts)
        await self._limits.remove()
        if self._targets.directories.get(self.record.uid) == self.directory:
            del self._targets.directories[self.record.uid]
        self._networking.release(self.record.id)
        self.set_facts(facts)
        if facts.elsewhere:
            return  # nothing of the VMI's has ended
        event_type = end_type(facts, stopping=self._stop.is_set())
        self._recorder.vmi_event(event_type, "Stopped", facts.message)
