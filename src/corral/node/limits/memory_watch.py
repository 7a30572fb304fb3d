"""Memory limits without cgroups: samples processes, and reports those above their limit.

A guest cannot grow beyond its memory and QEMU's overhead, so one sample per second suffices.  A
process that has not run long enough to fill what was left is not sampled.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.node.host.process import cpu_nanos
from corral.node.limits.methods import OnExceeded

SAMPLE_SECONDS = 1.0
MAX_BYTES_PER_NANOSECOND = 16
"""No process fills memory faster while it runs."""
_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(slots=True)
class _Process:
    """A watched process; it is not sampled before its CPU time reaches ``next_sample_nanos``."""

    pid: int
    limit: int
    on_exceeded: OnExceeded
    next_sample_nanos: int = 0

    def is_exceeded(self) -> bool:
        """Raises OSError."""
        ran = cpu_nanos(self.pid)
        if ran < self.next_sample_nanos:
            return False
        room = self.limit - own_bytes(self.pid)
        self.next_sample_nanos = ran + room // MAX_BYTES_PER_NANOSECOND
        return room < 0


class ResidentSet:
    """Samples all machines, once per second."""

    name = "sampling resident memory"
    blocks = False

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}
        self._timer: asyncio.TimerHandle | None = None

    def apply(self, uid: str, pid: int, limit: int, *, used: int, on_exceeded: OnExceeded) -> None:  # noqa: ARG002
        """Call ``on_exceeded`` once, when the process exceeds the limit."""
        self._processes[uid] = _Process(pid, limit, on_exceeded)
        self._set_timer()

    def cgroup_path(self, uid: str, pid: int) -> str:  # noqa: ARG002
        return ""

    def release(self, uid: str) -> None:
        self._processes.pop(uid, None)

    def remove(self, uid: str) -> None:
        self.release(uid)

    def _set_timer(self) -> None:
        if self._timer is None and self._processes:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SAMPLE_SECONDS, self._sample)

    def _sample(self) -> None:
        self._timer = None
        for uid, process in list(self._processes.items()):
            with suppress(OSError):  # it has ended, or the next sample succeeds
                if process.is_exceeded():
                    self.release(uid)
                    process.on_exceeded()
        self._set_timer()


def own_bytes(pid: int) -> int:
    """Return the private memory of a process, without file-backed pages.

    Raises ProcessLookupError if it has ended, and OSError.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    counters = (line.split() for line in text.splitlines() if line.startswith(_COUNTED))
    return sum(int(limit) * 1024 for _, limit, *_ in counters)
