"""What the kernel tells of files, as they change: nobody has to look again and again."""

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
IN_MOVE_SELF = 0x800
OVERFLOW = -1
"""In place of a watch: more has changed than the kernel keeps (IN_Q_OVERFLOW); look at all."""

_HINT = "raise fs.inotify.max_user_instances or max_user_watches with sysctl"
_CHUNK = 512 * 1024
"""Of what the kernel has to tell: more than it keeps (fs.inotify.max_queued_events, 16384)."""
PAUSE_SECONDS = 0.1
"""How long nothing more is heard after something was: a guest can write to its console thousands of
times a second, of which the kernel makes one event until that is read."""
_EVENT = struct.Struct("iIII")

log = structlog.get_logger()


class Inotify:
    """One descriptor for any number of watches.

    ``changed`` is called with the watch, and with the file's name where that is in a directory;
    without a name, too, when what was watched is no more or was moved away, and with OVERFLOW when
    more has changed than could be told.
    """

    def __init__(self, changed: Callable[[int, str], None]) -> None:
        self._changed = changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._otherwise = ""

    async def run(self, begin: Callable[[], object], *, otherwise: str) -> None:
        """Listen until cancelled; ``begin`` is called as soon as watches can be added.

        ``otherwise``: what the log says, once, where the kernel refuses.
        """
        self._otherwise = otherwise
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            self._tell_refusal(ctypes.get_errno())
            return
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        try:
            begin()
            while True:
                loop.add_reader(self._descriptor, heard.set)
                await heard.wait()
                loop.remove_reader(self._descriptor)
                heard.clear()
                self._read()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def add(self, path: Path, mask: int) -> int:
        """Watch a file or directory; negative where it is not there, or the kernel refuses."""
        if self._descriptor < 0:
            return -1
        watch = int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask))
        if watch < 0 and (number := ctypes.get_errno()) != errno.ENOENT:
            self._tell_refusal(number)
        return watch

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def _tell_refusal(self, number: int) -> None:
        if self._otherwise:
            log.error(self._otherwise, error=os.strerror(number), hint=_HINT)
        self._otherwise = ""

    def _read(self) -> None:
        try:
            seen = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        for watch, name in dict.fromkeys(_events(seen)):
            try:
                self._changed(watch, name)
            except Exception:
                # The one door: what one event leads to must not cost those that follow it.
                log.exception("a change of a file was lost", name=name)


def _events(seen: bytes) -> Iterator[tuple[int, str]]:
    """The watches that something is told of, and the names of files in them."""
    at = 0
    while at < len(seen):
        watch, _, _, length = _EVENT.unpack_from(seen, at)
        at += _EVENT.size
        yield watch, os.fsdecode(seen[at : at + length].rstrip(b"\0"))
        at += length
