"""CPU limits without cgroups: SIGSTOP for a process that exceeds its share, SIGCONT later.

The signals need no more rights than to start the process.  One timer serves all machines; a process
below its share is only sampled a few times a second.  A manager that dies leaves stopped processes
stopped: the next one has to continue them (``wake``).
"""

import asyncio
import heapq
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from corral.node.host.process import cpu_nanos, find, identify
from corral.node.limits.duty_math import Cycle


@dataclass(slots=True)
class _Process:
    """A sampled process, which may run for so many nanoseconds per second."""

    pid: int
    nanos: int
    pidfd: int
    cycle: Cycle
    is_stopped: bool = False
    is_released: bool = False


class DutyCycle:
    """Limits CPU time by stopping and continuing processes."""

    name = "stopping and continuing"
    blocks = False

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}
        self._due: list[tuple[float, int, _Process]] = []
        self._tie_breakers = count()
        self._timer: asyncio.TimerHandle | None = None

    def apply(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        current = self._processes.get(uid)
        if current is not None and (current.pid, current.nanos) == (pid, nanos):
            return
        self.release(uid)
        now = asyncio.get_running_loop().time()
        pidfd = os.pidfd_open(pid)
        try:
            cycle = Cycle(nanos / 1e9, now, cpu_nanos(pid) / 1e9)
        except ProcessLookupError:
            os.close(pidfd)
            raise
        self._processes[uid] = process = _Process(pid, nanos, pidfd, cycle)
        self._schedule(process, now)
        self._set_timer()

    def cgroup_path(self, uid: str, pid: int) -> str:  # noqa: ARG002
        return ""

    def lower_priority(self, uid: str, low: bool) -> None:  # noqa: FBT001
        """Do nothing: the nice value of the process suffices."""

    def release(self, uid: str) -> None:
        """Continue the process, without a limit."""
        if (process := self._processes.pop(uid, None)) is not None:
            process.is_released = True
            if process.is_stopped:
                _send(process, signal.SIGCONT)
            os.close(process.pidfd)

    def remove(self, uid: str) -> None:
        self.release(uid)

    def _schedule(self, process: _Process, due_time: float) -> None:
        heapq.heappush(self._due, (due_time, next(self._tie_breakers), process))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._due and self._due[0][2].is_released:
            heapq.heappop(self._due)
        if self._due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._due[0][0], self._sample_due)

    def _sample_due(self) -> None:
        """Sample all processes that are due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._due and self._due[0][0] <= loop.time():
            process = heapq.heappop(self._due)[2]
            if process.is_released:
                continue
            with suppress(ProcessLookupError):  # its end is noticed elsewhere
                decision = process.cycle.sample(loop.time(), cpu_nanos(process.pid) / 1e9)
                if decision.runs == process.is_stopped:
                    _send(process, signal.SIGCONT if decision.runs else signal.SIGSTOP)
                    process.is_stopped = not decision.runs
                self._schedule(process, loop.time() + decision.next_seconds)
        self._set_timer()


def _send(process: _Process, number: signal.Signals) -> None:
    with suppress(OSError):
        signal.pidfd_send_signal(process.pidfd, number)


def wake(directory: Path) -> None:
    """Continue the process of a directory, if an earlier manager has stopped it."""
    if (identity := find(directory)) is None:
        return
    with suppress(OSError):
        pidfd = os.pidfd_open(identity.pid)
        try:
            if identify(identity.pid) == identity:  # the pid was not reused meanwhile
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        finally:
            os.close(pidfd)
