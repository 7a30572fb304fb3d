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
_ANEW = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


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
    if not can_be_awaited(descriptor):
        while data:
            data = data[os.write(descriptor, data) :]
        return
    loop = asyncio.get_running_loop()
    with _unhindered(descriptor) as (sink, most):
        while data:
            await _ready(sink, loop.add_writer, loop.remove_writer)
            with suppress(BlockingIOError):
                data = data[os.write(sink, data[:most]) :]


@contextmanager
def _unhindered(descriptor: int) -> Iterator[tuple[int, int]]:
    """Where to write, and how much at once so that the write does not wait.

    A terminal with little room takes a part and waits with the rest, unless it is opened anew not
    to: the open terminal itself is shared with the shell, which expects it to wait.
    """
    if not os.isatty(descriptor):
        yield descriptor, _SURE
        return
    try:
        terminal = os.open(f"/proc/self/fd/{descriptor}", _ANEW)
    except OSError:  # another user's, after su: where there is room, there is room for a byte
        yield descriptor, 1
        return
    try:
        yield terminal, _SURE
    finally:
        os.close(terminal)


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
    """Give every key to the machine, Ctrl+C too, while the block runs.

    The terminal changes at once: to wait until it has shown everything may take for ever.
    """
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        yield
    finally:
        with suppress(termios.error):  # the terminal itself may be gone
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
