"""Ending by a signal, as cleanly as by itself."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(asyncio.Event):
    """Set when a signal asked to end; ``by`` is its number."""

    by: int = 0


@contextmanager
def ended() -> Iterator[Ended]:
    """While the block runs, let signals that end a program set an event instead."""
    loop = asyncio.get_running_loop()
    event = Ended()

    def end(number: int) -> None:
        event.by = number
        event.set()

    for number in ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        yield event
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
