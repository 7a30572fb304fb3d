"""Limits how many guests boot at the same time.

Emulated guests that boot together slow each other down: of ten at once all are ready after the
last one would have been, had they booted two by two, and the first one no earlier.  The others
wait in a queue, spares of warm pools behind all machines that somebody waits for.

One guest more than there are CPUs keeps the CPUs busy while others wait for their disks, but must
not slow them down: the last one in runs at low priority, until one of the others is up.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from corral.aio import Background

BOOT_SECONDS = 60.0
"""Timeout of a boot: after it the slot goes to the next guest."""

Waiting = deque["asyncio.Future[Slot]"]
LowerPriority = Callable[[bool], None]


class BootSlots:
    """The boot slots of a node.

    Their number is ``size`` if set; else ``at_once`` is queried when the first one is acquired.
    """

    def __init__(self, at_once: Callable[[], Awaitable[int]], *, size: int | None = None) -> None:
        self._at_once = at_once
        self._set_size = size
        self._size = 0
        self._acquired: list[Slot] = []
        self._waiting: tuple[Waiting, Waiting] = (deque(), deque())
        """Those that wait: the spares are the second."""

    async def acquire(self, on_wait: Callable[[int], None], *, spare: bool = False) -> "Slot":
        """Acquire a slot; ``on_wait`` is called with their number if all are in use."""
        self._size = self._size or self._set_size or await self._at_once()
        if len(self._acquired) < self._size:
            return self._grant()
        on_wait(self._size)
        granted: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting[spare].append(granted)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                granted.result().release()
            raise

    def _grant(self) -> "Slot":
        slot = Slot(self._release)
        self._acquired.append(slot)
        self._rank()
        return slot

    def _release(self, slot: "Slot") -> None:
        self._acquired.remove(slot)
        self._rank()
        for waiting in self._waiting:
            while waiting:
                granted = waiting.popleft()
                if not granted.done():  # else it was cancelled
                    granted.set_result(self._grant())
                    return

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
