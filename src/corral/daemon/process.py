"""The process that the manager is: its rights, its limits, and when it is to end."""

import asyncio
import os
import resource
import signal

from corral import python_gc


def prepare() -> None:
    """What holds for the whole process, before anything is written or served."""
    os.umask(0o077)  # logs, disks and sockets are nobody else's, wherever the directory lies
    _raise_descriptor_limit()
    python_gc.freeze()


def _raise_descriptor_limit() -> None:
    """A machine takes a few descriptors, and the usual soft limit is made for small programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def termination() -> asyncio.Event:
    """Set when the process is asked to end, by SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    return ended
