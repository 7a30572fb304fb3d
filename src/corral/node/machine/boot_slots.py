"""Limits how many guests boot at the same time.

Emulated guests that boot together slow each other down: of ten at once all are ready after the
last one would have been, had they booted two by two, and the first one no earlier.  The others
wait in a queue.

One guest more than there are CPUs keeps the CPUs busy while others wait for their disks, but must
not slow them down: the last one in runs at low priority, until one of the others is up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from corral.aio import Background

BOOT_SECONDS = 60.0
"""Timeout of a boot: after it the slot goes to the next guest."""

LowerPriority = Callable[[bool], None]


class BootSlots:
    """The boot slots of a node.

    Their number is ``size`` if set; else ``at_once`` is queried when the first one is acquired.
    """

    def __init__(self, at_once: Callable[[], Awaitable[int]], *, size: int | None = None) -> None:
        self._at_once = at_once
        self._set_size = size
        self._slots: asyncio.Semaphore | None = None
        self._size = 0
        self._acquired: list[Slot] = []

    async def acquire(self, on_wait: Callable[[int], None]) -> "Slot":
        """Acquire a slot; ``on_wait`` is called with their number if all are in use."""
        if self._slots is None:
            size = self._set_size or await self._at_once()
            if self._slots is None:  # another call may have set it meanwhile
                self._slots, self._size = asyncio.Semaphore(size), size
        if self._slots.locked():
            on_wait(self._size)
        await self._slots.acquire()
        slot = Slot(self._release)
        self._acquired.append(slot)
        self._rank()
        return slot

    def _release(self, slot: "Slot") -> None:
        assert self._slots is not None
        self._acquired.remove(slot)
        self._rank()
        self._slots.release()

    def _rank(self) -> None:
        for position, slot in enumerate(self._acquired, start=1):
            slot.rank(last=position == self._size > 1)


class Slot:
    """The right to boot.  A second release does nothing."""

    def __init__(self, release: Callable[["Slot"], None]) -> None:
        self._release: Callable[[Slot], None] | None = release
        self._last = False
        self._lower_priority: LowerPriority | None = None

    def rank(self, *, last: bool) -> None:
        if last != self._last:
            self._last = last
            if self._lower_priority is not None:
                self._lower_priority(last)

    def start_boot(self, lower_priority: LowerPriority) -> None:
        """Set the callback, which gets True while this guest has the last of all slots."""
        if self._release is None:
            return
        self._lower_priority = lower_priority
        if self._last:
            lower_priority(True)  # noqa: FBT003

    def release(self) -> None:
        if self._release is not None:
            if self._last and self._lower_priority is not None:
                self._lower_priority(False)  # noqa: FBT003
            self._release(self)
            self._release = None

    async def release_at(self, *signs: Coroutine[Any, Any, object]) -> None:
        """Release the slot at the first of these signs of a booted guest, or at a timeout."""
        with self:
            async with Background() as tasks:
                waiting = {tasks.start(one, name="sign of boot") for one in signs}
                await asyncio.wait(
                    waiting, timeout=BOOT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
