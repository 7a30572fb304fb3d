"""Bounds how many guests boot at once.

Emulated guests that boot together crawl together: ten at once are all ready after the last one
could have been, had they come two by two, and the first is ready no earlier.  The rest waits its
turn, in order.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class Boots:
    """The slots of a node.  Their number is asked for when the first one is taken."""

    def __init__(self, at_once: Callable[[], Awaitable[int]]) -> None:
        self._at_once = at_once
        self._slots: asyncio.Semaphore | None = None
        self._size = 0

    async def take(self, waits: Callable[[int], None]) -> "Slot":
        """A slot; ``waits`` is told how many there are, when all of them are taken."""
        if self._slots is None:
            size = await self._at_once()
            if self._slots is None:  # nobody else was told meanwhile
                self._slots, self._size = asyncio.Semaphore(size), size
        if self._slots.locked():
            waits(self._size)
        await self._slots.acquire()
        return Slot(self._slots)


class Slot:
    """The right to boot.  Giving it back twice is giving it back once."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots: asyncio.Semaphore | None = slots

    def give_back(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.give_back()
