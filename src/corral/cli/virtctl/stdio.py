"""Asynchronous standard input and output, and raw terminals."""

import asyncio
import os
import stat
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536
_PIPE_BUF = 4096
"""Bytes that a writable pipe accepts without blocking (pipe(7))."""
_REOPEN_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_pollable(descriptor: int) -> bool:
    """Report whether epoll supports a descriptor: a terminal, a pipe or a socket, not a file."""
    mode = os.fstat(descriptor).st_mode
    return os.isatty(descriptor) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def read(descriptor: int) -> AsyncIterator[bytes]:
    """Yield input as it arrives, until its end.

    Reads only after the descriptor is readable: a blocking read would stop the event loop.
    """
    loop = asyncio.get_running_loop()
    waits = is_pollable(descriptor)
    while True:
        if waits:
            await _ready(descriptor, loop.add_reader, loop.remove_reader)
        data = _read(descriptor)
        if not data:
            return
        yield data


async def write(descriptor: int, data: bytes) -> None:
    """Write all data.  Raises BrokenPipeError if the reader has closed."""
    if not is_pollable(descriptor):
        while data:
            data = data[os.write(descriptor, data) :]
        return
    loop = asyncio.get_running_loop()
    with _nonblocking(descriptor) as (sink, max_bytes):
        while data:
            await _ready(sink, loop.add_writer, loop.remove_writer)
            with suppress(BlockingIOError):
                data = data[os.write(sink, data[:max_bytes]) :]


@contextmanager
def _nonblocking(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield a descriptor, and the bytes that a write to it accepts without blocking.

    A terminal is opened anew with O_NONBLOCK: the flag on the inherited descriptor would change
    the shell's, too, which shares the open file.
    """
    if not os.isatty(descriptor):
        yield descriptor, _PIPE_BUF
        return
    try:
        terminal = os.open(f"/proc/self/fd/{descriptor}", _REOPEN_FLAGS)
    except OSError:  # of another user, after su: a writable terminal accepts at least one byte
        yield descriptor, 1
        return
    try:
        yield terminal, _PIPE_BUF
    finally:
        os.close(terminal)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        # The terminal or the peer was closed.
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
    """Put a terminal into raw mode while the block runs, so that Ctrl+C is input, too.

    TCSANOW: to drain the output of a stopped terminal may take for ever.
    """
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        yield
    finally:
        with suppress(termios.error):  # the terminal may be closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
