"""Termination by signals as an event, so that commands clean up."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Terminated(asyncio.Event):
    """Set when a signal has arrived; ``number`` is that of the signal."""

    number: int = 0


@contextmanager
def handle_signals() -> Iterator[Terminated]:
    """Let terminating signals set an event while the block runs."""
    loop = asyncio.get_running_loop()
    event = Terminated()

    def handle(number: int) -> None:
        event.number = number
        event.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield event
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
