"""Notifications about changed files, by inotify(7)."""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
IN_DELETE = 0x200
IN_MOVE_SELF = 0x800
OVERFLOW = -1
"""Instead of a watch: events were dropped (IN_Q_OVERFLOW); check all files."""

_HINT = "raise fs.inotify.max_user_instances or max_user_watches with sysctl"
_READ_BYTES = 512 * 1024
"""More than all queued events (fs.inotify.max_queued_events, 16384)."""
DEBOUNCE_SECONDS = 0.1
"""Pause between reads: a guest may write to its console thousands of times per second, and the
kernel merges equal events until they are read."""
_EVENT = struct.Struct("iIII")

log = structlog.get_logger()


class Inotify:
    """An inotify descriptor with any number of watches.

    ``on_change`` is called with the watch, and the file's name if the watch is of a directory;
    without a name also when the watched file was removed or moved, and with OVERFLOW when events
    were dropped.
    """

    def __init__(self, on_change: Callable[[int, str], None]) -> None:
        self._on_change = on_change
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._failure_message = ""

    async def run(self, on_ready: Callable[[], object], *, failure_message: str) -> None:
        """Read events until cancelled; ``on_ready`` is called as soon as watches can be added.

        ``failure_message``: message of the log entry, once, if the kernel refuses.
        """
        self._failure_message = failure_message
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            self._log_failure(ctypes.get_errno())
            return
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        try:
            on_ready()
            while True:
                loop.add_reader(self._descriptor, readable.set)
                await readable.wait()
                loop.remove_reader(self._descriptor)
                readable.clear()
                self._read()
                await asyncio.sleep(DEBOUNCE_SECONDS)
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def add(self, path: Path, mask: int) -> int:
        """Watch a file or directory; return -1 if it does not exist, or the kernel refuses."""
        if self._descriptor < 0:
            return -1
        watch = int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask))
        if watch < 0 and (error_number := ctypes.get_errno()) != errno.ENOENT:
            self._log_failure(error_number)
        return watch

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def _log_failure(self, error_number: int) -> None:
        if self._failure_message:
            log.error(self._failure_message, error=os.strerror(error_number), hint=_HINT)
        self._failure_message = ""

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        for watch, name in dict.fromkeys(_events(data)):
            try:
                self._on_change(watch, name)
            except Exception:
                # An exception for one event must not lose those that follow.
                log.exception("the handler of a file change failed", name=name)


def _events(data: bytes) -> Iterator[tuple[int, str]]:
    """Return the watch and the file name of each event."""
    offset = 0
    while offset < len(data):
        watch, _, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        yield watch, os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
        offset += length
