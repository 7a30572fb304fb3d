"""Plugs disks into machines that run, and takes them out, as their instances' specs change.

So do the media of CD-ROM drives, which stay.

What is plugged in is asked of the hypervisor, so a manager that was killed between any two steps
goes on where the last one was.  A guest may take its time to let go of a disk, or never do so: it
is asked again in pauses that grow.
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
from corral.node.hypervisor import DiskBusyError, Drive, GuestError
from corral.node.machine.drives import DriveError
from corral.node.machine.lifecycle import Machine
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS, Users
from corral.node.state.events import MachineEvents
from corral.node.state.facts import Plugged
from corral.reconcile.objects import is_being_deleted

LONGEST_PAUSE_SECONDS = 60.0
_MOMENT_SECONDS = 1.0
"""Between two tries for the same disk; a claim may take minutes to be filled."""

Instance = Callable[[str], VirtualMachineInstance | None]
"""Finds an instance by its uid."""
Drives = Callable[[Machine, VirtualMachineInstance], Awaitable[Mapping[str, Drive]]]
"""Prepares the drives of an instance's disks.  Raises DriveError."""


class HotPlug:
    """The disks of a node's machines that come and go."""

    def __init__(self, instance: Instance, drives: Drives, users: Users) -> None:
        self._instance = instance
        self._drives = drives
        self._users = users
        self._running: WeakValueDictionary[str, _Plugging] = WeakValueDictionary()

    def wake(self, uid: str) -> None:
        """An instance has changed, or something has happened to its guest."""
        if (plugging := self._running.get(uid)) is not None:
            plugging.due.set()

    def start_tasks(self, tasks: Background, machine: Machine, recorder: MachineEvents) -> None:
        """Follow an instance's wishes for as long as ``tasks`` go on, which hold what is known."""
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
    """What is to be done about a machine's disks, by the names of their volumes."""

    put_in: Mapping[str, HotplugDisk]
    take_out: Mapping[str, str]
    """With their claims."""


def plan(wanted: Mapping[str, HotplugDisk], present: Mapping[str, str]) -> Plan:
    """A volume that shows another claim now is taken out first."""
    right = {name for name, plug in wanted.items() if present.get(name) == plug.claim}
    return Plan(
        put_in={name: plug for name, plug in wanted.items() if name not in present},
        take_out={name: claim for name, claim in present.items() if name not in right},
    )


@dataclass(slots=True)
class _Attempt:
    """The last try for a volume, which has not come to its end.

    wish: what was tried; another wish is tried at once.
    """

    wish: object
    pause: float
    again_at: float


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Plugging:
    """The disks of one machine whose guest runs.

    present: the volumes whose disks are plugged in, with their claims; None where the hypervisor
    has to be asked.
    """

    machine: Machine
    recorder: MachineEvents
    drives: Drives
    users: Users
    due: Signal = field(default_factory=lambda: Signal(is_set=True))
    present: Mapping[str, str] | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)

    def look_again(self) -> None:
        """What is plugged in is not known any more."""
        self.present = None
        self.due.set()

    def on_released(self, volume: str) -> None:
        """The guest lets go of a volume: who waits for that need not wait any longer.

        But a moment after the last try: a guest may open and lock a drive again at will.
        """
        if (attempt := self.attempts.get(volume)) is not None:
            soonest = attempt.again_at - attempt.pause + _MOMENT_SECONDS
            attempt.again_at = min(attempt.again_at, max(_now(), soonest))
        self.look_again()

    async def step(self, vmi: VirtualMachineInstance) -> float | None:
        """Bring spec and guest together; the seconds until the next try, if one is needed.

        A guest that is saved keeps the disks that it has.
        """
        if self.machine.facts.saving:
            return FIRST_BACK_OFF_SECONDS
        wanted = hotplug_disks(vmi.spec)
        if self.present is None:
            try:
                self.present = await self.machine.guest.plugs.recover()
            except GuestError:
                return FIRST_BACK_OFF_SECONDS
            self._tell_of(self.present, vmi, wanted)
        self._forget(self.present, wanted)
        todo = plan(wanted, self.present)
        for volume, claim in todo.take_out.items():
            if self._is_due(volume, (DETACHING, claim)):
                await self._take_out(volume, claim)
        for volume, plug in todo.put_in.items():
            if self._is_due(volume, (plug, _claim_of(vmi, volume))):
                await self._put_in(vmi, plug)
        open_ = todo.take_out.keys() | todo.put_in.keys()
        self.attempts = {name: each for name, each in self.attempts.items() if name in open_}
        if not self.attempts:
            return None
        return max(0.0, min(each.again_at for each in self.attempts.values()) - _now())

    def _is_due(self, volume: str, wish: object) -> bool:
        """Whether a wish is to be tried now; it is not again for a while then."""
        before = self.attempts.get(volume)
        pause = FIRST_BACK_OFF_SECONDS
        if before is not None and before.wish == wish:
            if _now() < before.again_at:
                return False
            pause = min(before.pause * 2, LONGEST_PAUSE_SECONDS)
        self.attempts[volume] = _Attempt(wish, pause, _now() + pause)
        return True

    async def _put_in(self, vmi: VirtualMachineInstance, plug: HotplugDisk) -> None:
        volume = plug.disk.name
        try:
            prepared = await self.drives(self.machine, with_only_disks(vmi, [plug.disk]))
            if self.machine.facts.saving:
                return
            self._learn(volume, Plugged(phase=ATTACHED))
            await self.machine.guest.plugs.plug(vmi, plug, prepared)
        except DriveError as error:
            self._warn(volume, BOUND, error.reason, error.message)
        except GuestError as error:
            users = self.users(vmi, volume) if isinstance(error, DiskBusyError) else ""
            told = ": ".join(filter(None, (str(error), users)))
            why = f"Volume {volume} cannot be plugged in: {told}"
            self._warn(volume, ATTACHED, "VolumePlugFailed", why)
        self.look_again()

    async def _take_out(self, volume: str, claim: str) -> None:
        reminded = self.attempts[volume].pause > FIRST_BACK_OFF_SECONDS
        try:
            await self.machine.guest.plugs.unplug(volume, claim)
        except GuestError as error:
            why = f"Volume {volume} cannot be taken out: {error}"
            self._warn(volume, DETACHING, "VolumeUnplugFailed", why)
            return
        if reminded:
            why = f"The guest does not let go of volume {volume}"
            self._warn(volume, DETACHING, "VolumeInUse", why)
        else:
            why = f"Volume {volume} is being taken out of the guest"
            self._learn(volume, Plugged(phase=DETACHING, reason=DETACHING, message=why))

    def _tell_of(
        self,
        present: Mapping[str, str],
        vmi: VirtualMachineInstance,
        wanted: Mapping[str, HotplugDisk],
    ) -> None:
        """Tell of disks that have come, and of those that are gone."""
        for volume, plug in wanted.items():
            if present.get(volume) != plug.claim:
                continue
            why = f"Successfully attach hotplugged volume {volume} to VM"
            ready = Plugged(phase=READY, reason="VolumeReady", message=why)
            if self._learn(volume, ready) and phase_of(vmi, volume) != READY:
                self.recorder.vmi_event("Normal", ready.reason, why)
        going = {each.name for each in vmi.status.volume_status if each.phase == DETACHING}
        known = self.machine.facts.plugs or {}
        going |= {volume for volume, each in known.items() if each.phase == DETACHING}
        for volume in going - present.keys():
            why = f"Volume {volume} has been taken out of the guest"
            self.recorder.vmi_event("Normal", "VolumeUnplugged", why)
        if self.machine.facts.plugs is None:
            self.machine.set_facts(replace(self.machine.facts, plugs={}))

    def _forget(self, present: Mapping[str, str], wanted: Mapping[str, HotplugDisk]) -> None:
        """Tell no more of disks that are out, nor of those that never got in."""
        known = self.machine.facts.plugs or {}
        for volume in known.keys() - present.keys() - wanted.keys():
            self._learn(volume, None)

    def _warn(self, volume: str, phase: str, reason: str, message: str) -> None:
        if self._learn(volume, Plugged(phase=phase, reason=reason, message=message)):
            self.recorder.vmi_event("Warning", reason, message)

    def _learn(self, volume: str, plugged: Plugged | None) -> bool:
        """Note how a volume is; whether that is new."""
        facts = self.machine.facts
        plugs = {name: each for name, each in (facts.plugs or {}).items() if name != volume}
        if plugged is not None:
            plugs[volume] = plugged
        if plugs == facts.plugs:
            return False
        self.machine.set_facts(replace(facts, plugs=plugs))
        return True


def phase_of(vmi: VirtualMachineInstance, volume: str) -> str:
    """How far a volume is, as the instance's status tells."""
    told = (each.phase for each in vmi.status.volume_status if each.name == volume)
    return next(told, "")


def _claim_of(vmi: VirtualMachineInstance, volume: str) -> ClaimInfo | None:
    """What is known of a volume's claim; once it is other than it was, another try is worth it."""
    told = (each for each in vmi.status.volume_status if each.name == volume)
    return next((each.persistent_volume_claim_info for each in told), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
