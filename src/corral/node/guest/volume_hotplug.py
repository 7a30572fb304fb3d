"""Hotplug: plugs disks into running machines and unplugs them, as the VMIs' specs change.

The media of CD-ROM drives are changed in the same way.

The plugged disks are queried from the hypervisor, so after a kill between any two steps the next
manager resumes there.  A guest may take its time to release a disk, or never do so: the request
is repeated after growing pauses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from corral.aio import Background, Signal, wait_at_most
from corral.api.kinds.vmi.hotplug import (
    ATTACHED,
    BOUND,
    DETACHING,
    READY,
    HotplugDisk,
    hotplug_disks,
    with_only_disks,
)
from corral.api.kinds.vmi.status import ClaimInfo
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import DiskBusyError, Drive, GuestError, StartError
from corral.node.machine.drives import DriveError
from corral.node.machine.lifecycle import Machine
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS, Users
from corral.node.state.events import MachineEvents
from corral.node.state.facts import Plugged
from corral.reconcile.objects import is_being_deleted

LONGEST_PAUSE_SECONDS = 60.0
_MOMENT_SECONDS = 1.0
"""The least time between two attempts for the same disk; a claim may take minutes to be filled."""

Instance = Callable[[str], VirtualMachineInstance | None]
"""Finds a VMI by its uid."""
Drives = Callable[[Machine, VirtualMachineInstance], Awaitable[Mapping[str, Drive]]]
"""Prepares the drives of a VMI's disks.  Raises DriveError."""


class HotPlug:
    """Syncs the hotplugged disks of a node's machines."""

    def __init__(self, instance: Instance, drives: Drives, users: Users) -> None:
        self._instance = instance
        self._drives = drives
        self._users = users
        self._running: WeakValueDictionary[str, _Plugging] = WeakValueDictionary()

    def wake(self, uid: str) -> None:
        """Wake the task of a VMI that has changed, or whose guest has, unless it is idle."""
        if (plugging := self._running.get(uid)) is None:
            return
        vmi = self._instance(uid)
        if vmi is not None and not plugging.is_idle(vmi):
            plugging.due.set()

    def start_tasks(self, tasks: Background, machine: Machine, recorder: MachineEvents) -> None:
        """Sync a machine's disks with its VMI for as long as ``tasks`` runs."""
        plugging = _Plugging(machine, recorder, self._drives, self._users)
        self._running[machine.record.uid] = plugging
        machine.guest.plugs.on_released(plugging.on_released)
        tasks.whenever(plugging.due, self._follow, plugging, name="plug")

    async def _follow(self, plugging: "_Plugging") -> None:
        vmi = self._instance(plugging.machine.record.uid)
        if vmi is not None and not is_being_deleted(vmi):
            pause = await plugging.step(vmi)
            if pause is not None:
                await wait_at_most(plugging.due, pause)
                plugging.due.set()


@dataclass(frozen=True, slots=True)
class Plan:
    """The disks to plug and to unplug, by volume."""

    plug: Mapping[str, HotplugDisk]
    unplug: Mapping[str, str]
    """Claims by volume."""


def plan(desired: Mapping[str, HotplugDisk], present: Mapping[str, str]) -> Plan:
    """Compare desired with present disks; one whose claim has changed is unplugged first."""
    right = {name for name, plug in desired.items() if present.get(name) == plug.claim}
    return Plan(
        plug={name: plug for name, plug in desired.items() if name not in present},
        unplug={name: claim for name, claim in present.items() if name not in right},
    )


@dataclass(slots=True)
class _Attempt:
    """The last attempt for a volume, which has not succeeded yet.

    goal: what was attempted; another goal is attempted at once.
    """

    goal: object
    pause: float
    again_at: float


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Plugging:
    """The hotplugged disks of one machine whose guest runs.

    present: the claims of the plugged disks, by volume; None when the hypervisor must be queried.
    """

    machine: Machine
    recorder: MachineEvents
    drives: Drives
    users: Users
    due: Signal = field(default_factory=lambda: Signal(is_set=True))
    present: Mapping[str, str] | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)

    def is_idle(self, vmi: VirtualMachineInstance) -> bool:
        """Report whether there is no disk to plug or to unplug: so it is with most VMIs.

        A step takes a task of its own, and each change of a VMI or its guest wakes it.
        """
        known = self.present or self.attempts or self.machine.facts.plugs
        return self.present is not None and not known and not hotplug_disks(vmi.spec)

    def requery(self) -> None:
        """Query the plugged disks again."""
        self.present = None
        self.due.set()

    def on_released(self, volume: str) -> None:
        """Retry at once, since the guest has released a volume.

        But not right after the last attempt: a guest may open and lock its drive again at any time.
        """
        if (attempt := self.attempts.get(volume)) is not None:
            soonest = attempt.again_at - attempt.pause + _MOMENT_SECONDS
            attempt.again_at = min(attempt.again_at, max(_now(), soonest))
        self.requery()

    async def step(self, vmi: VirtualMachineInstance) -> float | None:
        """Take the next steps towards the spec; return the seconds until the next attempt, if any.

        A guest that is being saved keeps its disks.
        """
        if self.machine.facts.saving:
            return FIRST_BACK_OFF_SECONDS
        desired = hotplug_disks(vmi.spec)
        if self.present is None:
            try:
                self.present = await self.machine.guest.plugs.recover()
            except GuestError:
                return FIRST_BACK_OFF_SECONDS
            self._report_changes(self.present, vmi, desired)
            await self.machine.release_unplugged(self.present.keys())
        self._forget(self.present, desired)
        todo = plan(desired, self.present)
        for volume, claim in todo.unplug.items():
            if self._is_due(volume, (DETACHING, claim)):
                await self._unplug(volume, claim)
        for volume, plug in todo.plug.items():
            if self._is_due(volume, (plug, _claim_of(vmi, volume))):
                await self._plug(vmi, plug)
        open_ = todo.unplug.keys() | todo.plug.keys()
        self.attempts = {name: each for name, each in self.attempts.items() if name in open_}
        if not self.attempts:
            return None
        return max(0.0, min(each.again_at for each in self.attempts.values()) - _now())

    def _is_due(self, volume: str, goal: object) -> bool:
        """Report whether to attempt a goal now; if so, schedule the next attempt."""
        before = self.attempts.get(volume)
        pause = FIRST_BACK_OFF_SECONDS
        if before is not None and before.goal == goal:
            if _now() < before.again_at:
                return False
            pause = min(before.pause * 2, LONGEST_PAUSE_SECONDS)
        self.attempts[volume] = _Attempt(goal, pause, _now() + pause)
        return True

    async def _plug(self, vmi: VirtualMachineInstance, plug: HotplugDisk) -> None:
        volume = plug.disk.name
        try:
            prepared = await self.drives(self.machine, with_only_disks(vmi, [plug.disk]))
            if self.machine.facts.saving:
                return
            self._set_state(volume, Plugged(phase=ATTACHED))
            await self.machine.lease(prepared.values())
            await self.machine.guest.plugs.plug(vmi, plug, prepared)
        except (DriveError, StartError) as error:
            self._warn(volume, BOUND, error.reason, error.message)
        except GuestError as error:
            users = self.users(vmi, volume) if isinstance(error, DiskBusyError) else ""
            cause = ": ".join(filter(None, (str(error), users)))
            why = f"Volume {volume} cannot be plugged in: {cause}"
            self._warn(volume, ATTACHED, "VolumePlugFailed", why)
        self.requery()

    async def _unplug(self, volume: str, claim: str) -> None:
        repeated = self.attempts[volume].pause > FIRST_BACK_OFF_SECONDS
        try:
            await self.machine.guest.plugs.unplug(volume, claim)
        except GuestError as error:
            why = f"Volume {volume} cannot be unplugged: {error}"
            self._warn(volume, DETACHING, "VolumeUnplugFailed", why)
            return
        if repeated:
            why = f"The guest does not release volume {volume}"
            self._warn(volume, DETACHING, "VolumeInUse", why)
        else:
            why = f"Volume {volume} is being unplugged from the guest"
            self._set_state(volume, Plugged(phase=DETACHING, reason=DETACHING, message=why))

    def _report_changes(
        self,
        present: Mapping[str, str],
        vmi: VirtualMachineInstance,
        desired: Mapping[str, HotplugDisk],
    ) -> None:
        """Report disks that were plugged in or are gone."""
        for volume, plug in desired.items():
            if present.get(volume) != plug.claim:
                continue
            why = f"Successfully attach hotplugged volume {volume} to VM"
            ready = Plugged(phase=READY, reason="VolumeReady", message=why)
            if self._set_state(volume, ready) and phase_of(vmi, volume) != READY:
                self.recorder.vmi_event("Normal", ready.reason, why)
        going = {each.name for each in vmi.status.volume_status if each.phase == DETACHING}
        plugs = self.machine.facts.plugs or {}
        going |= {volume for volume, each in plugs.items() if each.phase == DETACHING}
        for volume in going - present.keys():
            why = f"Volume {volume} has been unplugged from the guest"
            self.recorder.vmi_event("Normal", "VolumeUnplugged", why)
        if self.machine.facts.plugs is None:
            self.machine.set_facts(replace(self.machine.facts, plugs={}))

    def _forget(self, present: Mapping[str, str], desired: Mapping[str, HotplugDisk]) -> None:
        """Drop the status of disks that are unplugged or were never plugged in."""
        plugs = self.machine.facts.plugs or {}
        for volume in plugs.keys() - present.keys() - desired.keys():
            self._set_state(volume, None)

    def _warn(self, volume: str, phase: str, reason: str, message: str) -> None:
        if self._set_state(volume, Plugged(phase=phase, reason=reason, message=message)):
            self.recorder.vmi_event("Warning", reason, message)

    def _set_state(self, volume: str, plugged: Plugged | None) -> bool:
        """Set the state of a volume; return whether it has changed."""
        facts = self.machine.facts
        plugs = {name: each for name, each in (facts.plugs or {}).items() if name != volume}
        if plugged is not None:
            plugs[volume] = plugged
        if plugs == facts.plugs:
            return False
        self.machine.set_facts(replace(facts, plugs=plugs))
        return True


def phase_of(vmi: VirtualMachineInstance, volume: str) -> str:
    """Return the phase of a volume in the VMI's status."""
    phases = (each.phase for each in vmi.status.volume_status if each.name == volume)
    return next(phases, "")


def _claim_of(vmi: VirtualMachineInstance, volume: str) -> ClaimInfo | None:
    """Return the status of a volume's claim: another attempt is due when it changes."""
    entries = (each for each in vmi.status.volume_status if each.name == volume)
    return next((each.persistent_volume_claim_info for each in entries), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
