"""The limits of one machine, from before its guest's first instruction until it has ended."""

import asyncio
from collections.abc import Sequence

import msgspec

from corral.node.chronicle import Chronicle
from corral.node.facts import Facts, out_of_memory
from corral.node.hypervisor import Guest, StartError
from corral.node.limits.limits import Limits, TooLittle

_MEBIBYTE = 2**20


class Fence:
    """Keeps one machine within its bounds; it does nothing where there are none."""

    def __init__(self, chronicle: Chronicle, limits: Limits | None) -> None:
        self._chronicle = chronicle
        self._limits = limits if chronicle.record.bounds else None
        self._over = asyncio.Event()

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
        await self._hold(guest, fresh=True)

    async def mend(self, guest: Guest) -> None:
        """Bound a guest that an earlier manager has started, and perhaps bounded."""
        try:
            await self._hold(guest, fresh=False)
        except StartError as error:
            self._chronicle.voice.of_pod("Warning", error.reason, str(error))

    async def _hold(self, guest: Guest, *, fresh: bool) -> None:
        record = self._chronicle.record
        if self._limits is None or guest.pid is None:
            return
        try:
            self._note(await self._limits.places(record.uid, guest.pid, record.bounds))
            await self._limits.hold(
                record.uid, guest.pid, record.bounds, fresh=fresh, over=self._over.set
            )
        except ProcessLookupError:
            return  # it has just ended, which is told by others
        except TooLittle as error:
            limit, held = (-(-size // _MEBIBYTE) for size in (error.limit, error.held))
            raise StartError(
                "MemoryLimitTooLow",
                f"the memory limit of the pod, {limit} MiB, is less than the {held} MiB that QEMU"
                " takes before its guest runs",
                "raise spec.domain.resources.limits.memory, or the LimitRange's default",
            ) from error
        except OSError as error:
            raise StartError("LimitsNotSet", f"its limits cannot be set: {error}") from error
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

    async def guard(self, guest: Guest) -> None:
        """End a guest that holds more memory than it may, where the kernel does not."""
        await self._over.wait()
        record = self._chronicle.record
        self._chronicle.decide(out_of_memory(self._chronicle.facts, record.bounds.memory_bytes))
        await guest.destroy()

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
