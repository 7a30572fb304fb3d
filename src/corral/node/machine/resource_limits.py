"""Resource limits of one machine, from before its guest's first instruction until its end."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from corral.aio import Background, Signal
from corral.failures import describe
from corral.node.hypervisor import Guest, StartError
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits, MemoryLimitTooLow
from corral.node.state.facts import Facts, out_of_memory
from corral.node.state.machine_state import MachineState

LEAST_PROCESSORS = 0.01
"""With less CPU QEMU does not even answer its monitor in time."""
_MEBIBYTE = 2**20
_FIRST_PAUSE_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 300.0


class MachineLimits:
    """Keeps one machine within its limits; does nothing if it has none."""

    def __init__(
        self, state: MachineState, limits: Limits | None, alarm: Callable[[], None] = lambda: None
    ) -> None:
        """``alarm`` is called when the guest exceeds its memory limit, and has to be ended."""
        self._alarm = alarm
        self._state = state
        self._all_limits = limits
        self._is_over = Signal()
        self._unapplied = False

    @property
    def _limits(self) -> Limits | None:
        """None while the machine has no limits, which its pod may get later."""
        return self._all_limits if self._state.record.bounds else None

    @property
    def processors(self) -> float:
        """The CPU limit of its guest, in CPUs."""
        bounds = self._state.record.bounds
        return bounds.processors if self._limits is not None else float("inf")

    async def wake(self) -> None:
        """Resume processes that an earlier manager has stopped: they would not answer."""
        if self._limits is not None:
            await self._limits.wake(self._state.directory)

    async def apply(self, guest: Guest) -> None:
        """Apply the limits to a new guest, before its first instruction.  Raises StartError."""
        self._is_over.clear()
        if self._limits is not None and self.processors < LEAST_PROCESSORS:
            raise StartError(
                "CPULimitTooLow",
                f"the CPU limit of the pod, {self.processors * 1000:g}m, is too little for QEMU to"
                " answer in time",
                "raise spec.domain.resources.limits.cpu, or the LimitRange's default, to"
                f" {LEAST_PROCESSORS * 1000:g}m or more",
                lasting=True,
            )
        try:
            await self._apply(guest, fresh=True)
        except ProcessLookupError as error:
            raise StartError("StartFailed", "QEMU has ended before its guest ran") from error

    async def reapply(self, guest: Guest) -> None:
        """Apply the limits to a guest that an earlier manager has started."""
        self._unapplied = False
        try:
            await self._apply(guest, fresh=False)
        except ProcessLookupError:
            return  # it has just ended, which is reported by others
        except StartError as error:
            self._unapplied = True
            self._state.recorder.pod_event("Warning", error.reason, str(error))

    async def change(self, bounds: Bounds, guest: Guest) -> None:
        """Change the limits of a guest to those of its pod, which was resized."""
        record = self._state.record
        if self._all_limits is None or bounds == record.bounds:
            return
        try:
            self._state.write(msgspec.structs.replace(record, bounds=bounds))
        except OSError as error:
            why = f"its limits cannot be recorded: {describe(error)}"
            self._state.recorder.pod_event("Warning", "LimitsNotSet", why)
            return
        await self.reapply(guest)

    async def _apply(self, guest: Guest, *, fresh: bool) -> None:
        """Raise StartError, and ProcessLookupError if the guest has just ended."""
        record = self._state.record
        if self._limits is None or guest.pid is None:
            return
        try:
            paths = await self._limits.cgroup_paths(record.id, guest.pid, record.bounds)
            self._record_groups(paths)
            await self._limits.apply(
                record.id, guest.pid, record.bounds, fresh=fresh, on_exceeded=self._on_exceeded
            )
        except ProcessLookupError:
            raise
        except MemoryLimitTooLow as error:
            limit, used = (-(-size // _MEBIBYTE) for size in (error.limit, error.used))
            raise StartError(
                "MemoryLimitTooLow",
                f"the memory limit of the pod, {limit} MiB, is less than the {used} MiB that QEMU"
                " takes before its guest runs",
                "raise spec.domain.resources.limits.memory, or the LimitRange's default",
                lasting=True,
            ) from error
        except OSError as error:
            raise StartError(
                "LimitsNotSet", f"its limits cannot be set: {describe(error)}"
            ) from error
        self._state.step("bounded")

    def _record_groups(self, places: Sequence[str]) -> None:
        """Record the control groups of a machine before it is moved there.  Raises OSError."""
        record = self._state.record
        groups = tuple(dict.fromkeys((*record.groups, *places)))
        if groups != record.groups:
            self._state.write(msgspec.structs.replace(record, groups=groups))

    def lower_priority(self, guest: Guest, low: bool) -> None:  # noqa: FBT001 - a switch
        """Lower a guest's CPU priority, in QEMU and in its control group."""
        guest.lower_priority(low)
        if self._limits is not None:
            self._limits.lower_priority(self._state.record.id, low)

    def guard(self, tasks: Background, guest: Guest) -> None:
        """End a guest that exceeds its memory limit, where the kernel does not.

        Limits that could not be applied are retried.
        """
        tasks.when(self._is_over, self._end_for_memory, guest, name="guard")
        if self._unapplied:
            tasks.start(self._retry(guest), name="retry limits")

    async def _retry(self, guest: Guest) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while self._unapplied:
            await asyncio.sleep(pause)
            await self.reapply(guest)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _end_for_memory(self, guest: Guest) -> None:
        self.record_exceeded()
        await self.destroy(guest)

    async def destroy(self, guest: Guest) -> None:
        """End a guest, without a CPU limit: QEMU has only moments to flush its disks."""
        await self.lift()
        await self._state.destroy(guest)

    async def lift(self) -> None:
        """Lift the CPU limit of a guest that is being ended."""
        if self._limits is not None:
            record = self._state.record
            await self._limits.lift(record.id, record.groups)

    def record_exceeded(self) -> bool:
        """Record an exceeded memory limit as the guest's outcome; return whether there was one."""
        if self._is_over.is_set():
            limit = self._state.record.bounds.memory_bytes
            self._state.record_outcome(out_of_memory(self._state.facts, limit))
        return self._is_over.is_set()

    def _on_exceeded(self) -> None:
        self._is_over.set()
        self._alarm()

    def release(self) -> None:
        """Stop watching the guest: the manager stops, or the guest has ended."""
        if self._limits is not None:
            self._limits.release(self._state.record.id)

    async def add_outcome(self, facts: Facts) -> Facts:
        """Return the facts of an ended guest: OOM-killed, if the kernel says so."""
        record = self._state.record
        limit = record.bounds.memory_bytes
        if self._limits is not None and limit and await self._limits.was_oom_killed(record.groups):
            return out_of_memory(facts, limit)
        return facts

    async def remove(self) -> None:
        """Remove the control groups, once the outcome of the guest is recorded."""
        if self._limits is not None:
            await self._limits.remove(self._state.record.id, self._state.record.groups)
