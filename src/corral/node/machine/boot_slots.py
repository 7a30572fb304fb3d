"""Bounds how many guests boot at once.

Emulated guests that boot together crawl together: ten at once are all ready after the last one
could have been, had they come two by two, and the first is ready no earlier.  The rest waits its
turn, in order.

One guest more than there are processors keeps these busy while others wait for their disks, but
it must not slow them down: the last one to come steps back, until one of the others is up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from corral.aio import Background

BOOT_SECONDS = 60.0
"""A guest that is not up after this long gives its slot to the next."""

StepBack = Callable[[bool], None]


class Boots:
    """The slots of a node.

    Their number is ``size`` where somebody has set it; else ``at_once`` is asked when the first one
    is taken.
    """

    def __init__(self, at_once: Callable[[], Awaitable[int]], *, size: int | None = None) -> None:
        self._at_once = at_once
        self._set_size = size
        self._slots: asyncio.Semaphore | None = None
        self._size = 0
        self._taken: list[Slot] = []

    async def take(self, waits: Callable[[int], None]) -> "Slot":
        """A slot; ``waits`` is told how many there are, when all of them are taken."""
        if self._slots is None:
            size = self._set_size or await self._at_once()
            if self._slots is None:  # nobody else was told meanwhile
                self._slots, self._size = asyncio.Semaphore(size), size
        if self._slots.locked():
            waits(self._size)
        await self._slots.acquire()
        slot = Slot(self._give_back)
        self._taken.append(slot)
        self._rank()
        return slot

    def _give_back(self, slot: "Slot") -> None:
        assert self._slots is not None
        self._taken.remove(slot)
        self._rank()
        self._slots.release()

    def _rank(self) -> None:
        for place, slot in enumerate(self._taken, start=1):
            slot.rank(last=place == self._size > 1)


class Slot:
    """The right to boot.  Giving it back twice is giving it back once."""

    def __init__(self, give_back: Callable[["Slot"], None]) -> None:
        self._give_back: Callable[[Slot], None] | None = give_back
        self._last = False
        self._step_back: StepBack | None = None

    def rank(self, *, last: bool) -> None:
        if last != self._last:
            self._last = last
            if self._step_back is not None:
                self._step_back(last)

    def boots(self, step_back: StepBack) -> None:
        """Who boots here is told to step back (True) while it is the last one of all."""
        if self._give_back is None:
            return
        self._step_back = step_back
        if self._last:
            step_back(True)  # noqa: FBT003

    def give_back(self) -> None:
        if self._give_back is not None:
            if self._last and self._step_back is not None:
                self._step_back(False)  # noqa: FBT003
            self._give_back(self)
            self._give_back = None

    async def hold_until(self, *signs: Coroutine[Any, Any, object]) -> None:
        """Give it back when the first of these signs that the guest is up is there."""
        with self:
            async with Background() as tasks:
                waiting = {tasks.start(one, name="sign of boot") for one in signs}
                await asyncio.wait(
                    waiting, timeout=BOOT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()
