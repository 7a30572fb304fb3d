"""How long a connection waits for its client, with one timer that is hardly ever touched."""

import asyncio
from collections.abc import Callable

LOOK_SECONDS = 30.0
"""So often a timer looks, at most, whether its time is over."""


def _nothing() -> None:
    """Do nothing."""


class Patience:
    """Calls ``lost`` when what is waited for has not come in time.

    What is waited for nearly always comes.  To make and cancel a timer of the loop for it would be
    a tenth of what a small request costs, so the timer stays and looks when it fires.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[], None]) -> None:
        self._loop = loop
        self._lost = lost
        self._timer: asyncio.TimerHandle | None = None
        self.due: float | None = None
        """When it is lost, in seconds of the loop's clock; None while nothing is waited for."""

    def begin(self, seconds: float) -> None:
        """Wait for something that is to come in so many seconds."""
        self.due = self._loop.time() + seconds
        if self._timer is None:
            self._arm(self.due)
        elif self._timer.when() > self.due:
            self._timer.cancel()
            self._arm(self.due)

    def end(self) -> None:
        """It has come."""
        self.due = None

    def close(self) -> None:
        """Nothing is waited for any more, ever; it lets go of whom it would have called."""
        self.due = None
        self._lost = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        self._timer = self._loop.call_at(min(due, self._loop.time() + LOOK_SECONDS), self._look)

    def _look(self) -> None:
        self._timer = None
        if self.due is None:
            return
        if self.due <= self._loop.time():
            self.due = None
            self._lost()
        else:
            self._arm(self.due)
