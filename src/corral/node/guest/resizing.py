"""Plugs vCPUs and memory into running guests, once the VMI controller has granted them.

Its conditions HotVCPUChange and HotMemoryChange, and ``status.memory.guestRequested``, say that the
pod has them.  What is there is queried from the hypervisor, so after a kill between any two steps
the next manager resumes there.  A guest may take its time to take memory, or refuse to; what it
does not bring online by itself (a udev rule does that in most distributions), its agent does.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from corral.aio import Background, Signal, wait_at_most
from corral.api.kinds.vmi.derived import guest_memory, processors
from corral.api.kinds.vmi.live_update import (
    VCPU_CHANGE,
    has_condition,
    max_memory_bytes,
    queues,
    requested_guest,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import GuestError, GuestSize
from corral.node.machine.lifecycle import Machine
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS
from corral.node.state.events import MachineEvents
from corral.reconcile.objects import is_being_deleted

FAILED = "HotPlugFailed"
_LONGEST_PAUSE_SECONDS = 60.0

Instance = Callable[[str], VirtualMachineInstance | None]
"""Finds a VMI by its uid."""


class Resizes:
    """Syncs the vCPUs and the memory of a node's guests."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._running: WeakValueDictionary[str, _Resize] = WeakValueDictionary()

    def wake(self, uid: str) -> None:
        """Wake the task of a VMI that has changed, or whose guest has."""
        if (resize := self._running.get(uid)) is not None:
            resize.due.set()

    def start_tasks(self, tasks: Background, machine: Machine, recorder: MachineEvents) -> None:
        """Sync a guest with its VMI for as long as ``tasks`` runs."""
        resize = _Resize(machine, recorder)
        self._running[machine.record.uid] = resize
        machine.guest.resizing.on_changed(resize.on_changed)
        tasks.whenever(resize.due, self._follow, resize, name="resize")

    async def _follow(self, resize: "_Resize") -> None:
        vmi = self._instance(resize.machine.record.uid)
        if vmi is None or is_being_deleted(vmi):
            return
        if (pause := await resize.step(vmi)) is not None:
            await wait_at_most(resize.due, pause)
            resize.due.set()


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Resize:
    """The vCPUs and the memory of one guest that runs.

    size: as last queried; None when the hypervisor must be queried.
    offline: whether the guest's agent is to bring online what it has seen; None before the first
    query: what was plugged in before, it may have seen while no manager ran.
    tried: what was last attempted and has failed; pause: seconds until the next attempt.
    """

    machine: Machine
    recorder: MachineEvents
    due: Signal = field(default_factory=lambda: Signal(is_set=True))
    size: GuestSize | None = None
    offline: bool | None = None
    tried: tuple[int, int] | None = None
    pause: float = FIRST_BACK_OFF_SECONDS
    again_at: float = 0.0

    def on_changed(self) -> None:
        """Query the size again: the guest has seen vCPUs, or has taken or released memory."""
        self.size, self.offline = None, True
        self.due.set()

    async def step(self, vmi: VirtualMachineInstance) -> float | None:
        """Take the next step towards the VMI; return the seconds until the next attempt, if any.

        A guest that is being saved or sent keeps its size.
        """
        facts = self.machine.facts
        if facts.elsewhere:
            return None
        if facts.saving or not self.machine.departure.idle.is_set():
            return FIRST_BACK_OFF_SECONDS
        try:
            if self.size is None:
                self.size = await self._query()
            if self.offline is None:
                self.offline = _has_grown(vmi, self.size)
            await self._bring_online()
            # The target starts with as many vCPUs as the guest has at the hand-over.
            return None if vmi.is_migrating else await self._approach(vmi, self.size)
        except GuestError as error:
            self.size = None
            return self._fail(vmi, str(error))

    async def _approach(self, vmi: VirtualMachineInstance, size: GuestSize) -> float | None:
        count, memory = desired(vmi, size)
        if count <= size.processors and memory == size.requested_bytes:
            self.tried = None
            self._report_failure("")
            return None
        if self.tried == (count, memory) and (left := self.again_at - _now()) > 0:
            return left
        if count > size.processors:
            await self.machine.guest.resizing.plug_processors(count)
            self.recorder.vmi_event("Normal", "HotPlugged", f"The guest has {count} vCPUs now.")
        if memory != size.requested_bytes:
            await self.machine.guest.resizing.request_memory(memory)
            mebibytes = (size.boot_bytes + memory) >> 20
            why = f"The guest is requested to have {mebibytes}Mi of memory."
            self.recorder.vmi_event("Normal", "MemoryRequested", why)
        self.size = await self._query()
        self.tried = None
        self._report_failure("")
        return None

    async def _bring_online(self) -> None:
        """Have the agent bring online what the guest has not by itself; without one, it may."""
        if self.offline and self.machine.facts.agent_connected:
            self.offline = False
            with suppress(GuestError):  # an old agent, or one that may not: a udev rule has to
                await self.machine.guest.agent.bring_online()

    async def _query(self) -> GuestSize:
        size = await self.machine.guest.resizing.query()
        self.machine.set_facts(replace(self.machine.facts, size=size))
        return size

    def _fail(self, vmi: VirtualMachineInstance, why: str) -> float:
        facts = self.machine.facts
        if facts.size is None:
            return FIRST_BACK_OFF_SECONDS
        attempt = desired(vmi, facts.size)
        is_repeated = self.tried == attempt
        longer = min(2 * self.pause, _LONGEST_PAUSE_SECONDS)
        self.pause = longer if is_repeated else FIRST_BACK_OFF_SECONDS
        self.tried, self.again_at = attempt, _now() + self.pause
        if self._report_failure(why):
            self.recorder.vmi_event("Warning", FAILED, why)
        return self.pause

    def _report_failure(self, why: str) -> bool:
        """Set why it fails; return whether that has changed."""
        facts = self.machine.facts
        if facts.resize_failure == why:
            return False
        self.machine.set_facts(replace(facts, resize_failure=why))
        return True


def desired(vmi: VirtualMachineInstance, size: GuestSize) -> tuple[int, int]:
    """Return the vCPUs, and the bytes to be plugged in, that are granted to a guest."""
    domain, memory = vmi.spec.domain, requested_guest(vmi)
    count = processors(domain).total if has_condition(vmi, VCPU_CHANGE) else size.processors
    if not max_memory_bytes(domain) or memory != guest_memory(domain):  # not granted yet
        return count, size.requested_bytes
    return count, max(0, memory.rounded_up() - size.boot_bytes)


def _has_grown(vmi: VirtualMachineInstance, size: GuestSize) -> bool:
    return size.plugged_bytes > 0 or size.processors > (queues(vmi) or size.processors)


def _now() -> float:
    return asyncio.get_running_loop().time()
