"""Standard input and output of a command that waits for other things as well."""

import asyncio
import os
import stat
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536
_SURE = 4096
"""Bytes that a pipe takes at once when it takes any (pipe(7), PIPE_BUF)."""


def can_be_awaited(descriptor: int) -> bool:
    """Whether input comes over time: from a terminal, a pipe or a socket, not from a file."""
    mode = os.fstat(descriptor).st_mode
    return os.isatty(descriptor) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def read(descriptor: int) -> AsyncIterator[bytes]:
    """What comes in, as it comes, to its end.

    It is read where it is known to be there: a read that waits would stop everything else.
    """
    loop = asyncio.get_running_loop()
    waits = can_be_awaited(descriptor)
    while True:
        if waits:
            await _ready(descriptor, loop.add_reader, loop.remove_reader)
        data = _read(descriptor)
        if not data:
            return
        yield data


async def write(descriptor: int, data: bytes) -> None:
    """Write everything; raises BrokenPipeError when nobody reads any more."""
    loop = asyncio.get_running_loop()
    waits = can_be_awaited(descriptor)
    while data:
        if waits:
            await _ready(descriptor, loop.add_writer, loop.remove_writer)
        data = data[os.write(descriptor, data[:_SURE]) :]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        # A terminal that was closed, a peer that went away: no more will come.
        return b""


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Give every key to the machine, Ctrl+C too, while the block runs."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        with suppress(termios.error):  # the terminal itself may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
