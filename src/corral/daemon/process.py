"""The manager's process: umask, descriptor limit, garbage collection, termination signals."""

import asyncio
import ctypes
import os
import resource
import signal

from corral import python_gc

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # malloc.h
_LARGE_BYTES = 128 << 10


def prepare() -> None:
    """Set process-wide limits, before anything is written or served."""
    os.umask(0o077)  # logs, disks and sockets are private, wherever the directory is
    _raise_descriptor_limit()
    python_gc.freeze()


def _raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: each machine needs a few descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_large_blocks() -> None:
    """Let glibc's malloc(3) return large blocks to the system as soon as they are freed.

    It begins so, but keeps larger and larger ones, in a heap for each of some threads: what a
    joined node's guests once took to migrate stays with its agent.  Does nothing with other C
    libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_ARENA_MAX, 1)


def termination() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    return ended
