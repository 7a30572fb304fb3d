"""What a way to bound processes is: the kernel's, and those without its help.

A way bounds processor time or memory.  It is told when a machine is to be held, when its manager
lets go of it, and when it has ended; all of that can be told again.  The kernel takes its time to
move a process (``waits``): not in the event loop, to which the other ways belong.
"""

from collections.abc import Callable
from typing import Protocol

Over = Callable[[], None]
"""Is told that a machine holds more memory than it may."""


class CpuWay(Protocol):
    """Bounds processor time."""

    name: str
    waits: bool

    def hold(self, uid: str, pid: int, nanos: int) -> None:
        """Let a process use no more than so many nanoseconds a second.  Raises OSError."""

    def place(self, uid: str, pid: int) -> str:
        """The path of the group that holds a machine, or is to; empty where none does."""

    def step_back(self, uid: str, back: bool) -> None:  # noqa: FBT001 - a switch
        """Leave the processors to others as far as they want them, where niceness does not."""

    def release(self, uid: str) -> None:
        """The manager lets go of a machine, which runs on."""

    def clear(self, uid: str) -> None:
        """A machine has ended."""


class MemoryWay(Protocol):
    """Bounds memory."""

    name: str
    waits: bool

    def hold(self, uid: str, pid: int, size: int, *, held: int, over: Over) -> None:
        """End a process that holds more.  Raises OSError.

        ``held``: what it holds already, of which others have the account; ``over`` is called where
        it is not the kernel that ends it.
        """

    def place(self, uid: str, pid: int) -> str: ...

    def release(self, uid: str) -> None: ...

    def clear(self, uid: str) -> None: ...
