"""Network namespaces: create one, find that of a process, run functions in it.

A namespace lives as long as a process is in it or a descriptor of it is open.  A thread that has
entered one without root's rights may not return to the host's namespace, so each visit is a thread
of its own, which ends with it.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar, TypeVarTuple

from corral.aio import own_thread
from corral.node.host.linux_namespaces import (
    CLONE_NEWNET,
    MS_BIND,
    enter,
    mount,
    unmount,
    unshare,
)

_NS_GET_NSTYPE = 0xB703  # linux/nsfs.h

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _single_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="namespace")


class Namespace:
    """A network namespace, held open by a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> Self:
        """Create a namespace, with only a loopback in it, which is down.  Raises OSError."""
        with _single_thread() as thread:
            return thread.submit(cls.unshare_thread).result()

    @classmethod
    def unshare_thread(cls) -> Self:
        """Move the calling thread into a new namespace (``aio.own_thread``).  Raises OSError."""
        unshare(CLONE_NEWNET)
        return cls.current()

    @classmethod
    def current(cls) -> Self:
        """Return the namespace of the calling thread."""
        return cls(_current())

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """Return the namespace of a process.

        Raises OSError, for instance if it has ended, or if it has no namespace of its own: what a
        caller configures there would be the host's.
        """
        path = Path(f"/proc/{pid}/ns/net")
        if path.samefile("/proc/self/ns/net"):
            raise OSError(
                errno.EINVAL, "the process has no network namespace of its own", str(path)
            )
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def bind(self, path: Path) -> None:
        """Mount it on a file, which keeps it without a process, as ``ip netns`` does.

        Raises OSError.
        """
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        mount(f"/proc/self/fd/{self.descriptor}", path, MS_BIND)

    def enter(self) -> None:
        """Move the calling thread into the namespace (``aio.own_thread``).  Raises OSError."""
        enter(self.descriptor, CLONE_NEWNET)

    def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in the namespace, wait for it, and raise what it raises."""
        with _single_thread() as thread:
            return thread.submit(lambda: self._inside(function, *arguments)).result()

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in the namespace, and await it.

        If the caller is cancelled the function still runs to its end, and its result is lost.
        """
        return await own_thread(lambda: self._inside(function, *arguments))

    def close(self) -> None:
        """Close the descriptor.

        The kernel removes the namespace and its links when nobody else uses it.
        """
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


def is_bound(path: Path) -> bool:
    """Report whether a network namespace is mounted on a file, as this process sees it.

    The mount may be in the mount namespace of an earlier process only; the file is there then.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return fcntl.ioctl(descriptor, _NS_GET_NSTYPE) == CLONE_NEWNET
        finally:
            os.close(descriptor)
    return False


def unbind(path: Path) -> None:
    """Undo ``Namespace.bind``, as far as it was done.  Raises OSError."""
    if is_bound(path):
        unmount(path)
    path.unlink(missing_ok=True)


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
