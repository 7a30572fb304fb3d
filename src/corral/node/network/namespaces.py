"""Network namespaces: made, found by a process, and entered by a thread.

A namespace lives as long as a process is in it or a descriptor is open.  Who enters one without
root's rights may not come back to the host's, so each visit is a thread that ends with it.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar, TypeVarTuple

from corral.aio import apart

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Move the calling thread into new namespaces (unshare(2)).  Raises OSError."""
    _checked(_libc.unshare(kinds))


def enter(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace (setns(2)).  Raises OSError."""
    _checked(_libc.setns(descriptor, kind))


def _checked(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="namespace")


class Namespace:
    """A network namespace, held open by a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> Self:
        """A new namespace, with nothing in it but a loopback that is down.  Raises OSError."""
        with _thread() as thread:
            return thread.submit(cls.begin).result()

    @classmethod
    def begin(cls) -> Self:
        """A new namespace with the calling thread in it (see ``aio.apart``).  Raises OSError."""
        unshare(CLONE_NEWNET)
        return cls.current()

    @classmethod
    def current(cls) -> Self:
        """The namespace of the calling thread."""
        return cls(_current())

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """The namespace that a process is in.  Raises OSError, for instance where it has ended."""
        return cls(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def enter(self) -> None:
        """Move the calling thread inside (see ``aio.apart``).  Raises OSError."""
        enter(self.descriptor, CLONE_NEWNET)

    def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function inside, and wait for it; it raises what the function raises."""
        with _thread() as thread:
            return thread.submit(lambda: self._inside(function, *arguments)).result()

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function inside, and await it.

        Where the caller is cancelled the function goes on to its end, and its result is lost.
        """
        return await apart(lambda: self._inside(function, *arguments))

    def close(self) -> None:
        """Let go of it; the kernel removes it and all its links when nobody else is in it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _inside(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        self.enter()
        return function(*arguments)


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
