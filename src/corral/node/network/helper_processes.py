"""Helper processes of the network: started, adopted by the next manager, restarted.

They outlive the manager, as machines do (``node/host/process``), so that connections do, too.
"""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from corral.aio import finished, own_thread
from corral.failures import describe
from corral.node.health import Health
from corral.node.host.proc import acquire_lock, runs
from corral.node.host.process import Process, launch
from corral.node.network.netlink import NetworkError

Start = Callable[[Sequence[int], int], Awaitable[int]]
"""Starts a program with inherited descriptors and a descriptor for its output; returns its pid."""

FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 30.0
_STABLE_SECONDS: Final = 10.0
"""A program that ran for this long is restarted at once."""
_OUTPUT: Final = "output"
_OUTPUT_CHARACTERS: Final = 300
_IGNORED_OUTPUT: Final = "to syslog"  # pasta complains where syslog does not run

_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_CAPABILITY_VERSION: Final = 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2


class Helper:
    """A helper process, with a directory of its own.

    ``problem`` says what is wrong with it; ``on_change`` is called when that changes.
    """

    def __init__(
        self, name: str, directory: Path, start: Start, *, on_change: Callable[[], None]
    ) -> None:
        self.name = name
        self._directory = directory
        self._start = start
        self._health = Health(name, on_change)
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.ended

    @property
    def output(self) -> Path:
        """The file with what it has printed."""
        return self._directory / _OUTPUT

    @property
    def problem(self) -> str:
        """The problem with it; empty while it runs well."""
        return self._health.problem

    async def ensure(self) -> Process:
        """Return the process, adopted or started.  Raises NetworkError."""
        if self._process is not None and self.is_running:
            return self._process
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = await self._adopt()
            if process is None:
                process = await finished(self._start_new())
        except OSError as error:
            raise NetworkError(f"{self.name} cannot be started: {describe(error)}") from error
        self._process = process
        return process

    async def find(self) -> Process | None:
        """Return the process that an earlier manager has started, if it runs."""
        if self._process is None:
            self._process = await self._adopt()
        return self._process

    async def run(self) -> None:
        """Restart the process whenever it ends, with exponential backoff."""
        loop = asyncio.get_running_loop()
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            started = loop.time()
            try:
                process = await self.ensure()
            except NetworkError as error:
                self._health.report(error.full_message)
            else:
                if backoff == FIRST_BACKOFF_SECONDS:
                    self._health.report("")
                await self._wait_for_end(process)
            if loop.time() - started > _STABLE_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def end(self) -> None:
        """Kill the process, and wait for its end.  Raises NetworkError if it does not end."""
        process = self._process or await self._adopt()
        if process is not None and not await process.end():
            raise unkillable(self.name, process)

    def release(self) -> None:
        """Leave the process to a later manager."""
        if self._process is not None:
            self._process.release()
            self._process = None

    async def _wait_for_end(self, process: Process) -> None:
        """Wait until it ends; clear the problem once it has run for a while."""
        try:
            async with asyncio.timeout(_STABLE_SECONDS):
                await process.wait()
        except TimeoutError:
            self._health.report("")
            await process.wait()
            self._health.report(f"{self.name} has ended and is started again")
        else:
            reason = f": {output}" if (output := self._first_output()) else ""
            self._health.report(f"{self.name} has ended early and is started again{reason}")

    async def _adopt(self) -> Process | None:
        return await Process.adopt(self._directory) if runs(self._directory) else None

    async def _start_new(self) -> Process:
        lock = acquire_lock(self._directory)
        if lock is None:
            raise NetworkError(f"another {self.name} is about to end")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            output = os.open(self.output, flags, 0o600)
            try:
                pid = await self._start([lock], output)
            finally:
                os.close(output)
            # Set here already: the caller may have been cancelled.
            self._process = process = Process.of_child(pid, self._directory)
            return process
        finally:
            os.close(lock)

    def _first_output(self) -> str:
        """Return the first line of its output."""
        try:
            text = self.output.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if _IGNORED_OUTPUT not in line]
        return next(filter(None, lines), "")[:_OUTPUT_CHARACTERS]


def unkillable(name: str, process: Process) -> NetworkError:
    """Return the error for a process that was killed and does not end."""
    return NetworkError(
        f"{name} (process {process.identity.pid}) was killed and does not end",
        "It waits in the kernel, for instance for a disk; try again when it is gone.",
    )


async def launch_with_capabilities(
    command: Sequence[str], *, descriptors: Sequence[int], output: int
) -> int:
    """Launch a program that may configure networks; return its pid.

    Without root a program loses the capabilities of its parent, unless the parent makes them
    ambient.
    """

    def launch_in_thread() -> int:
        if os.geteuid() != 0:
            _keep_capabilities(_CAP_NET_ADMIN, _CAP_SYS_ADMIN)
        return launch(command, descriptors=descriptors, output=output)

    return await own_thread(launch_in_thread)


def _keep_capabilities(*capabilities: int) -> None:
    """Make capabilities of the calling thread ambient: programs it starts keep them."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable: 32 bits each
    results = [libc.capget(header, sets)]
    for each in capabilities:
        sets[3 * (each // 32) + 2] |= 1 << each % 32
    results.append(libc.capset(header, sets))
    results += [
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, each, 0, 0) for each in capabilities
    ]
    if any(results):
        error = ctypes.get_errno()
        raise OSError(error, f"capabilities cannot be kept: {os.strerror(error)}")
