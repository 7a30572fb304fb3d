"""Bounds memory without the kernel's help: looks at what is held, tells who has too much.

A guest cannot grow beyond its memory and what QEMU needs, so a look a second is soon enough.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.node.limits.ways import Over

LOOK_SECONDS = 1.0
_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(frozen=True, slots=True)
class _Held:
    """A process that is looked at."""

    pid: int
    size: int
    over: Over


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
                if own_bytes(one.pid) > one.size:
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
