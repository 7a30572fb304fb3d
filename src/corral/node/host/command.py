"""Runs another program to its end, with a timeout, such as qemu-img or a plugin."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from corral.aio import finished
from corral.node.host.process import END_SECONDS


class Result(NamedTuple):
    """The exit status of a program (negative: the signal that ended it) and its output."""

    status: int
    output: bytes
    errors: bytes


async def run(
    *command: str | Path,
    seconds: float,
    stdin: bytes | IO[bytes] = b"",
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Result:
    """Run a program, in a session of its own, and return its result.

    It is killed, with what it runs itself, after ``seconds`` and if the caller is cancelled.
    ``stdin`` is what it reads, or an open file; ``environment`` and ``directory`` are those of this
    process by default.  Raises TimeoutError, and OSError if it cannot be started.
    """
    given = stdin if isinstance(stdin, bytes) else None
    starting = asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE if isinstance(stdin, bytes) else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=directory,
        start_new_session=True,
    )
    # A start that is cancelled half-way may wait for ever (Python 3.11).
    process = await finished(starting, discard=_signal)
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(given)
    finally:
        if process.returncode is None:
            await _kill(process)
    return Result(process.returncode or 0, output, errors)


def _signal(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a program, and wait for its end with a timeout, since it may hang in the kernel."""
    _signal(process)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await process.communicate()
