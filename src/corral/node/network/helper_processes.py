"""Programs that the network needs beside the manager: started, found again, started again.

They outlive the manager, as machines do (``node/host/process``), so that connections do too.
"""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from corral.aio import apart, finished
from corral.failures import describe
from corral.node.health import Health
from corral.node.host.process import Process, hold, launch, runs
from corral.node.network.netlink import NetworkError

Start = Callable[[Sequence[int], int], Awaitable[int]]
"""Starts a program that inherits some descriptors and writes to another; answers its pid."""

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
_SETTLED_SECONDS: Final = 10.0
"""A program that ran for so long is started again at once."""
_OUTPUT: Final = "output"
_LONGEST_COMPLAINT: Final = 300
_NOISE: Final = "to syslog"  # pasta misses it where there is none

_NET_ADMIN, _SYS_ADMIN = 12, 21
_CAPABILITY_VERSION: Final = 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2


class Helper:
    """One such program, in a directory of its own.

    ``problem`` says what is wrong with it, ``changed`` is told when that has changed.
    """

    def __init__(
        self, name: str, directory: Path, start: Start, *, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self._directory = directory
        self._start = start
        self._health = Health(name, changed)
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.ended

    @property
    def problem(self) -> str:
        """What is wrong with it; empty while it is well."""
        return self._health.problem

    async def ensure(self) -> Process:
        """The program, found again or started.  Raises NetworkError."""
        if self._process is not None and self.is_running:
            return self._process
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = await self._found()
            if process is None:
                process = await finished(self._started())
        except OSError as error:
            raise NetworkError(f"{self.name} cannot be started: {describe(error)}") from error
        self._process = process
        return process

    async def find(self) -> Process | None:
        """The program that an earlier manager has left."""
        if self._process is None:
            self._process = await self._found()
        return self._process

    async def run(self) -> None:
        """Start it again whenever it ends, with a pause that grows while it does not stay."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            since = loop.time()
            try:
                process = await self.ensure()
            except NetworkError as error:
                self._health.say(error.told)
            else:
                if pause == FIRST_PAUSE_SECONDS:
                    self._health.say("")
                await self._stays(process)
            if loop.time() - since > _SETTLED_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def end(self) -> None:
        """Kill it, and wait for its end.  Raises NetworkError where it does not come."""
        process = self._process or await self._found()
        if process is not None and not await process.end():
            raise endless(self.name, process)

    def release(self) -> None:
        """Leave it to a later manager."""
        if self._process is not None:
            self._process.release()
            self._process = None

    async def _stays(self, process: Process) -> None:
        """Until it ends; one that has stayed for a while is well again."""
        try:
            async with asyncio.timeout(_SETTLED_SECONDS):
                await process.wait()
        except TimeoutError:
            self._health.say("")
            await process.wait()
            self._health.say(f"{self.name} has ended and is started again")
        else:
            why = f": {complaint}" if (complaint := self._complaint()) else ""
            self._health.say(f"{self.name} has ended early and is started again{why}")

    async def _found(self) -> Process | None:
        return await Process.adopt(self._directory) if runs(self._directory) else None

    async def _started(self) -> Process:
        lock = hold(self._directory)
        if lock is None:
            raise NetworkError(f"another {self.name} is about to end")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            output = os.open(self._directory / _OUTPUT, flags, 0o600)
            try:
                pid = await self._start([lock], output)
            finally:
                os.close(output)
            # Here already: who waits for it may be gone.
            self._process = process = Process.of_child(pid, self._directory)
            return process
        finally:
            os.close(lock)

    def _complaint(self) -> str:
        """The first thing that it said."""
        try:
            text = (self._directory / _OUTPUT).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if _NOISE not in line]
        return next(filter(None, lines), "")[:_LONGEST_COMPLAINT]


def endless(name: str, process: Process) -> NetworkError:
    """What is told of a program that was killed and does not end."""
    return NetworkError(
        f"{name} (process {process.identity.pid}) was killed and does not end",
        "The kernel keeps it, say for a disk that does not answer; try again when it is gone.",
    )


async def launch_able(command: Sequence[str], *, descriptors: Sequence[int], output: int) -> int:
    """Launch a program that may change networks; answers its pid.

    A program that is not root's loses what its parent was allowed, unless the parent says that it
    may keep it (ambient capabilities).
    """

    def launched() -> int:
        if os.geteuid() != 0:
            _keep(_NET_ADMIN, _SYS_ADMIN)
        return launch(command, descriptors=descriptors, output=output)

    return await apart(launched)


def _keep(*capabilities: int) -> None:
    """Let what the calling thread starts keep some capabilities (capabilities(7), ambient)."""
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
