"""Bounds processor time without the kernel's help: who has used its share up is stopped a while.

SIGSTOP and SIGCONT need no more rights than to start the process.  One timer serves all machines;
who uses less than its share is only looked at, a few times a second.  A manager that dies leaves
who it had stopped standing still: whoever takes the machine over has to wake it (``wake``).
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
class _Held:
    """A process that is looked at."""

    pid: int
    pidfd: int
    cycle: Cycle
    stopped: bool = False
    gone: bool = False


class DutyCycle:
    """Stops processes as often as it takes."""

    name = "stopping and continuing"
    waits = False

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._due: list[tuple[float, int, _Held]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, uid: str, pid: int, nanos: int) -> None:
        """Raises OSError."""
        if (known := self._held.get(uid)) is not None and known.pid == pid:
            return
        self.release(uid)
        now = asyncio.get_running_loop().time()
        pidfd = os.pidfd_open(pid)
        try:
            cycle = Cycle(nanos / 1e9, now, cpu_nanos(pid) / 1e9)
        except ProcessLookupError:
            os.close(pidfd)
            raise
        self._held[uid] = held = _Held(pid, pidfd, cycle)
        self._look_later(held, now)
        self._set_timer()

    def place(self, uid: str, pid: int) -> str:  # noqa: ARG002
        return ""

    def step_back(self, uid: str, back: bool) -> None:  # noqa: FBT001
        """Niceness does it."""

    def release(self, uid: str) -> None:
        """It runs on, unbounded until somebody holds it again."""
        if (held := self._held.pop(uid, None)) is not None:
            held.gone = True
            if held.stopped:
                _send(held, signal.SIGCONT)
            os.close(held.pidfd)

    def clear(self, uid: str) -> None:
        self.release(uid)

    def _look_later(self, held: _Held, moment: float) -> None:
        heapq.heappush(self._due, (moment, next(self._numbers), held))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._due and self._due[0][2].gone:
            heapq.heappop(self._due)
        if self._due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._due[0][0], self._look)

    def _look(self) -> None:
        """Look at everybody who is due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._due and self._due[0][0] <= loop.time():
            held = heapq.heappop(self._due)[2]
            if held.gone:
                continue
            with suppress(ProcessLookupError):  # its end is told by others
                verdict = held.cycle.look(loop.time(), cpu_nanos(held.pid) / 1e9)
                if verdict.runs == held.stopped:
                    _send(held, signal.SIGCONT if verdict.runs else signal.SIGSTOP)
                    held.stopped = not verdict.runs
                self._look_later(held, loop.time() + verdict.again)
        self._set_timer()


def _send(held: _Held, number: signal.Signals) -> None:
    with suppress(OSError):
        signal.pidfd_send_signal(held.pidfd, number)


def wake(directory: Path) -> None:
    """Let what runs for a directory go on, if a manager before this one has stopped it."""
    if (identity := find(directory)) is None:
        return
    with suppress(OSError):
        pidfd = os.pidfd_open(identity.pid)
        try:
            if identify(identity.pid) == identity:  # its number was not given away meanwhile
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        finally:
            os.close(pidfd)
