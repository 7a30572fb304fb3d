"""The limits of one machine, from before its guest's first instruction until it has ended."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from corral.aio import Background, Signal
from corral.failures import describe
from corral.node.hypervisor import Guest, StartError
from corral.node.limits.limits import Limits, TooLittle
from corral.node.state.facts import Facts, out_of_memory
from corral.node.state.machine_state import Chronicle

LEAST_PROCESSORS = 0.01
"""With less QEMU does not even answer in time that its guest runs."""
_MEBIBYTE = 2**20
_FIRST_PAUSE_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 300.0


class Fence:
    """Keeps one machine within its bounds; it does nothing where there are none."""

    def __init__(
        self, chronicle: Chronicle, limits: Limits | None, alarm: Callable[[], None] = lambda: None
    ) -> None:
        """``alarm`` is called when the guest holds too much memory, and has to be ended."""
        self._alarm = alarm
        self._chronicle = chronicle
        self._limits = limits if chronicle.record.bounds else None
        self._over = Signal()
        self._open = False

    @property
    def processors(self) -> float:
        """How many processors its guest may use."""
        bounds = self._chronicle.record.bounds
        return bounds.processors if self._limits is not None else float("inf")

    async def wake(self) -> None:
        """Let what runs go on: stopped by an earlier manager, it would not answer."""
        if self._limits is not None:
            await self._limits.wake(self._chronicle.directory)

    async def put_up(self, guest: Guest) -> None:
        """Bound a new guest, before its first instruction.  Raises StartError."""
        self._over.clear()
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
            await self._hold(guest, fresh=True)
        except ProcessLookupError as error:
            raise StartError("StartFailed", "QEMU has ended before its guest ran") from error

    async def mend(self, guest: Guest) -> None:
        """Bound a guest that an earlier manager has started, and perhaps bounded."""
        self._open = False
        try:
            await self._hold(guest, fresh=False)
        except ProcessLookupError:
            return  # it has just ended, which is told by others
        except StartError as error:
            self._open = True
            self._chronicle.voice.of_pod("Warning", error.reason, str(error))

    async def _hold(self, guest: Guest, *, fresh: bool) -> None:
        """Raises StartError, and ProcessLookupError where the guest has just ended."""
        record = self._chronicle.record
        if self._limits is None or guest.pid is None:
            return
        try:
            self._note(await self._limits.places(record.uid, guest.pid, record.bounds))
            await self._limits.hold(
                record.uid, guest.pid, record.bounds, fresh=fresh, over=self._exceeded
            )
        except ProcessLookupError:
            raise
        except TooLittle as error:
            limit, held = (-(-size // _MEBIBYTE) for size in (error.limit, error.held))
            raise StartError(
                "MemoryLimitTooLow",
                f"the memory limit of the pod, {limit} MiB, is less than the {held} MiB that QEMU"
                " takes before its guest runs",
                "raise spec.domain.resources.limits.memory, or the LimitRange's default",
                lasting=True,
            ) from error
        except OSError as error:
            raise StartError(
                "LimitsNotSet", f"its limits cannot be set: {describe(error)}"
            ) from error
        self._chronicle.step("bounded")

    def _note(self, places: Sequence[str]) -> None:
        """Put it on record where a machine is bounded before it is.  Raises OSError."""
        record = self._chronicle.record
        groups = tuple(dict.fromkeys((*record.groups, *places)))
        if groups != record.groups:
            self._chronicle.write(msgspec.structs.replace(record, groups=groups))

    def step_back(self, guest: Guest, back: bool) -> None:  # noqa: FBT001 - a switch
        """Have a guest leave the processors to others, in and outside of its fence."""
        guest.step_back(back)
        if self._limits is not None:
            self._limits.step_back(self._chronicle.record.uid, back)

    def guard(self, tasks: Background, guest: Guest) -> None:
        """End a guest that holds more memory than it may, where the kernel does not.

        One that could not be bounded is bounded as soon as that is possible.
        """
        tasks.when(self._over, self._condemn, guest, name="guard")
        if self._open:
            tasks.start(self._close(guest), name="mend")

    async def _close(self, guest: Guest) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while self._open:
            await asyncio.sleep(pause)
            await self.mend(guest)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _condemn(self, guest: Guest) -> None:
        self.judge()
        await self.destroy(guest)

    async def destroy(self, guest: Guest) -> None:
        """End a guest, whose QEMU has only moments to write down what it holds of the disks."""
        await self.lift()
        await self._chronicle.destroy(guest)

    async def lift(self) -> None:
        """Bound the processors of what is ended no more."""
        if self._limits is not None:
            record = self._chronicle.record
            await self._limits.lift(record.uid, record.groups)

    def judge(self) -> bool:
        """Whether a guest has to be ended for the memory that it holds, which is put on record."""
        if self._over.is_set():
            limit = self._chronicle.record.bounds.memory_bytes
            self._chronicle.decide(out_of_memory(self._chronicle.facts, limit))
        return self._over.is_set()

    def _exceeded(self) -> None:
        self._over.set()
        self._alarm()

    def release(self) -> None:
        """The manager lets go of the guest."""
        if self._limits is not None:
            self._limits.release(self._chronicle.record.uid)

    async def verdict(self, facts: Facts) -> Facts:
        """The guest has ended: what is known then, if it was for its memory."""
        record = self._chronicle.record
        limit = record.bounds.memory_bytes
        if self._limits is not None and limit and await self._limits.ran_out(record.groups):
            return out_of_memory(facts, limit)
        return facts

    async def take_down(self) -> None:
        """Nothing of it stays, once it is on record how its guest has ended."""
        if self._limits is not None:
            await self._limits.clear(self._chronicle.record.uid, self._chronicle.record.groups)
