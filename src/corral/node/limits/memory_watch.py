"""Bounds memory without the kernel's help: looks at what is held, tells who has too much.

A guest cannot grow beyond its memory and what QEMU needs, so a look a second is soon enough.  Who
has not run for long enough to fill what was left is not even looked at.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.node.host.process import cpu_nanos
from corral.node.limits.methods import Over

LOOK_SECONDS = 1.0
FASTEST_BYTES_A_NANOSECOND = 16
"""No process fills memory faster than that while it runs."""
_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(slots=True)
class _Held:
    """A process that is looked at; it cannot hold too much before it has run for ``enough``."""

    pid: int
    size: int
    over: Over
    enough: int = 0

    def is_over(self) -> bool:
        """Raises OSError."""
        ran = cpu_nanos(self.pid)
        if ran < self.enough:
            return False
        room = self.size - own_bytes(self.pid)
        self.enough = ran + room // FASTEST_BYTES_A_NANOSECOND
        return room < 0


class ResidentSet:
    """Looks at all machines at once, in a pass a second."""

    name = "looking at what is resident"
    waits = False

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, uid: str, pid: int, size: int, *, held: int, over: Over) -> None:  # noqa: ARG002
        """Call ``over`` once when a process holds more."""
        self._held[uid] = _Held(pid, size, over)
        self._set_timer()

    def place(self, uid: str, pid: int) -> str:  # noqa: ARG002
        return ""

    def release(self, uid: str) -> None:
        self._held.pop(uid, None)

    def clear(self, uid: str) -> None:
        self.release(uid)

    def _set_timer(self) -> None:
        if self._timer is None and self._held:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        for uid, one in list(self._held.items()):
            with suppress(OSError):  # its end is told by others, and another look comes soon
                if one.is_over():
                    self.release(uid)
                    one.over()
        self._set_timer()


def own_bytes(pid: int) -> int:
    """The memory that a process has to itself: what it runs and reads from files can be dropped.

    Raises ProcessLookupError, and OSError where that cannot be found out.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    counted = (line.split() for line in text.splitlines() if line.startswith(_COUNTED))
    return sum(int(size) * 1024 for _, size, *_ in counted)
