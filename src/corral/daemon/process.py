"""The manager's process: umask, descriptor limit, garbage collection, termination signals."""

import asyncio
import os
import resource
import signal

from corral import python_gc


def prepare() -> None:
    """Set process-wide limits, before anything is written or served."""
    os.umask(0o077)  # logs, disks and sockets are private, wherever the directory is
    _raise_descriptor_limit()
    python_gc.freeze()


def _raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: each machine needs a few descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def termination() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    return ended
