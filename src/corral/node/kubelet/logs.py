"""The console log of each machine: rotated, and followed without polling.

QEMU appends to ``console.log`` itself.  When that exceeds its maximum size its end is kept as
``console.log.1`` and it is truncated: QEMU's descriptor is opened with O_APPEND, so it continues
at the start.  One inotify descriptor watches all logs.  What QEMU itself prints is rotated in the
same way: there are guests that can make it print a line as often as they like.

A serial port has no timestamps, and QEMU writes none into the log.  The manager is notified when a
log grows, and keeps a mark: at most one a second, and fewer of the older ones, so that a few
hundred marks cover a year.
"""

import asyncio
import os
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from corral import files
from corral.node.host.inotify import IN_MODIFY, OVERFLOW, Inotify

NAME = "console.log"
OLDER = "console.log.1"
OUTPUT = "qemu.log"
LARGEST_BYTES = 1024 * 1024
MOST_MARKS = 256
_APART_SECONDS = 1.0
_SHARE = 0.15

_CHUNK = 64 * 1024

logger = structlog.get_logger()


class Times:
    """The marks of one log.  Offsets count bytes from the start of everything ever logged."""

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("d")

    def add(self, end: int, moment: float) -> None:
        """Record that the log ends at this offset at this moment, in seconds since 1970."""
        if self._ends and end <= self._ends[-1]:
            return
        if self._times and moment - self._times[-1] < _APART_SECONDS:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._times.append(moment)
        if len(self._ends) > MOST_MARKS:
            self._thin_out()

    def _thin_out(self) -> None:
        """Drop each mark whose neighbours are no farther apart than a share of its age."""
        times, newest = self._times, self._times[-1]
        kept = [0]
        for index in range(1, len(times) - 1):
            apart = times[index + 1] - times[kept[-1]]
            if apart > _SHARE * (newest - times[index]):
                kept.append(index)
        kept = [*kept, len(times) - 1][1 - MOST_MARKS :]
        self._ends = array("q", (self._ends[index] for index in kept))
        self._times = array("d", (times[index] for index in kept))

    def at(self, offset: int) -> float | None:
        """Return when the byte at an offset was written; None if that was not observed yet."""
        index = bisect_right(self._ends, offset)
        return self._times[index] if index < len(self._times) else None

    def since(self, moment: float) -> int:
        """Return the offset of what was written since a moment."""
        index = bisect_left(self._times, moment)
        return self._ends[index - 1] if index else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A part of a log, and its offset in everything ever logged."""

    content: bytes
    offset: int


@dataclass(slots=True)
class _Log:
    """A log: how many bytes were truncated from its file so far, and when it grew."""

    truncated: int = 0
    times: Times = field(default_factory=Times)


class Logs:
    """Watches the logs of all machines of a node."""

    def __init__(self) -> None:
        self._inotify = Inotify(self._on_change)
        self._watches: dict[int, Path] = {}
        self._outputs: dict[int, Path] = {}
        """Directories by the watches of what QEMU prints."""
        self._followed: dict[Path, tuple[int, int]] = {}
        """Both watches of a directory; what QEMU prints is there whenever the console log is."""
        self._readers: dict[Path, set[asyncio.Event]] = {}
        self._logs: dict[Path, _Log] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._inotify.run(
                self._follow_all,
                failure_message="console logs are neither kept within bounds nor followed",
            )
        finally:
            self._watches.clear()
            self._outputs.clear()

    def _follow_all(self) -> None:
        for directory in list(self._followed):
            self.follow(directory)

    def follow(self, directory: Path) -> None:
        """Rotate the logs of a machine, once they exist.  Idempotent."""
        if self._followed.setdefault(directory, (-1, -1))[0] in self._watches:
            return
        watch = self._inotify.add(directory / NAME, IN_MODIFY)
        if watch >= 0:
            self._watches[watch] = directory
            output = self._inotify.add(directory / OUTPUT, IN_MODIFY)
            if output >= 0:
                self._outputs[output] = directory
            self._followed[directory] = watch, output
            _rotate(directory, OUTPUT)
            self._update(directory, first=True)
            self.wake(directory)

    def forget(self, directory: Path) -> None:
        """Stop watching the log of a removed machine, and wake its readers."""
        self._logs.pop(directory, None)
        watch, output = self._followed.pop(directory, (-1, -1))
        for one, watches in ((watch, self._watches), (output, self._outputs)):
            if watches.pop(one, None) is not None:
                self._inotify.remove(one)
        self.wake(directory)

    def wake(self, directory: Path) -> None:
        """Wake the readers of a log: it has grown, or its machine has ended."""
        for changed in self._readers.get(directory, ()):
            changed.set()

    @contextmanager
    def changes(self, directory: Path) -> Iterator[asyncio.Event]:
        """Provide an event that is set whenever the log has changed."""
        changed = asyncio.Event()
        self._readers.setdefault(directory, set()).add(changed)
        try:
            yield changed
        finally:
            readers = self._readers[directory]
            readers.discard(changed)
            if not readers:
                del self._readers[directory]

    def _on_change(self, watch: int, _name: str) -> None:
        if watch in self._outputs:
            _rotate(self._outputs[watch], OUTPUT)
        if watch == OVERFLOW:  # the queue was full: any log may have changed
            changed = list(self._watches.values())
            for directory in self._outputs.values():
                _rotate(directory, OUTPUT)
        else:
            changed = [self._watches[watch]] if watch in self._watches else []
        for directory in changed:
            self._update(directory)
            self.wake(directory)

    async def grown(
        self, directory: Path, offset: int, changed: asyncio.Event, ended: Callable[[], bool]
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Iterate over what is appended after an offset, with offsets, until the machine has ended.

        The log need not exist yet, and may be truncated before all of it was read.
        """
        log = self._logs.setdefault(directory, _Log())  # it may be dropped before it is read
        while True:
            over = ended()  # checked before the read, since output before the end is still read
            while True:
                offset, chunk = _from(directory, log.truncated, offset)
                if not chunk:
                    break
                yield offset, chunk
                offset += len(chunk)
            if over:
                return
            await changed.wait()
            changed.clear()

    def kept(
        self, directory: Path, *, lines: int | None = None, since: float | None = None
    ) -> "Kept":
        """Return the kept part of a log: its last lines, and what was written since a moment."""
        log = self._logs.get(directory) or _Log()
        older, newer = (_content(directory / name) for name in (OLDER, NAME))
        whole, begin = older + newer, log.truncated - len(older)
        if since is not None:
            cut = max(0, log.times.since(since) - begin)
            whole = whole[whole.rfind(b"\n", 0, cut) + 1 :] if cut < len(whole) else b""
        shown = _last_lines(whole, lines)
        return Kept(shown, offset=log.truncated + len(newer) - len(shown))

    def written_at(self, directory: Path, offset: int) -> float:
        """Return when the byte at an offset of a log was written, in seconds since 1970."""
        log = self._logs.get(directory)
        moment = log.times.at(offset) if log is not None else None
        return time.time() if moment is None else moment

    def _update(self, directory: Path, *, first: bool = False) -> None:
        """Record the growth of a log, and rotate it; ``first``: its growth was not observed."""
        log = self._logs.setdefault(directory, _Log())
        with suppress(FileNotFoundError):
            status = (directory / NAME).stat()
            moment = status.st_mtime if first else time.time()
            log.times.add(log.truncated + status.st_size, moment)
            log.truncated += _rotate(directory, NAME)


def _rotate(directory: Path, name: str) -> int:
    """Keep the end of a log that is too large elsewhere, and truncate it.

    Only the end is copied: a log may have grown for days without a manager.  Returns the bytes that
    are truncated, 0 also after a (logged) failure.
    """
    path = directory / name
    try:
        size = path.stat().st_size
        if size <= LARGEST_BYTES:
            return 0
        with path.open("rb") as file:
            file.seek(size - LARGEST_BYTES)
            files.replace(directory / f"{name}.1", file.read(LARGEST_BYTES))
        os.truncate(path, 0)
    except FileNotFoundError:
        return 0
    except OSError as error:
        logger.warning("log cannot be rotated", path=str(path), error=str(error))
        return 0
    return size


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _last_lines(content: bytes, lines: int | None) -> bytes:
    if lines is None:
        return content
    if lines == 0:
        return b""
    at = len(content.removesuffix(b"\n"))
    for _ in range(lines):
        at = content.rfind(b"\n", 0, at)
        if at < 0:
            return content
    return content[at + 1 :]


def _from(directory: Path, truncated: int, offset: int) -> tuple[int, bytes]:
    """Read a chunk of a log, and return its offset: later if that part is not kept any more."""
    if offset < truncated:
        with suppress(FileNotFoundError), (directory / OLDER).open("rb") as file:
            offset = max(offset, truncated - os.fstat(file.fileno()).st_size)
            file.seek(offset - truncated, os.SEEK_END)
            if chunk := file.read(_CHUNK):
                return offset, chunk
        offset = truncated
    with suppress(FileNotFoundError), (directory / NAME).open("rb") as file:
        if offset - truncated > os.fstat(file.fileno()).st_size:
            offset = truncated  # somebody else has truncated it
        file.seek(offset - truncated)
        return offset, file.read(_CHUNK)
    return offset, b""
