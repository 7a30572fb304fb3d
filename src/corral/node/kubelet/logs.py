"""The console log of each machine: kept within bounds, and followed without polling.

QEMU appends to ``console.log`` itself.  When that grows beyond its bound its end is kept as
``console.log.1`` and it is emptied in place: QEMU's descriptor is opened for appending, so it goes
on at the beginning.  One inotify descriptor tells of all logs.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from corral import files
from corral.node.host.inotify import IN_MODIFY, OVERFLOW, Inotify
from corral.node.kubelet.log_times import Times

NAME = "console.log"
OLDER = "console.log.1"
LARGEST_BYTES = 1024 * 1024

_CHUNK = 64 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kept:
    """A part of a log, and its place among all there ever was."""

    content: bytes
    place: int


@dataclass(slots=True)
class _Log:
    """One log: how much of it was emptied out of its file, and when it grew."""

    emptied: int = 0
    times: Times = field(default_factory=Times)


class Logs:
    """Watches the logs of all machines of a node."""

    def __init__(self) -> None:
        self._inotify = Inotify(self._on_change)
        self._watches: dict[int, Path] = {}
        self._followed: dict[Path, int] = {}
        self._readers: dict[Path, set[asyncio.Event]] = {}
        self._logs: dict[Path, _Log] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._inotify.run(
                self._follow_all,
                otherwise="console logs are neither kept within bounds nor followed",
            )
        finally:
            self._watches.clear()

    def _follow_all(self) -> None:
        for directory in list(self._followed):
            self.follow(directory)

    def follow(self, directory: Path) -> None:
        """Keep the log of a machine within bounds, from when it is there.  Idempotent."""
        self._followed.setdefault(directory, -1)
        if self._followed[directory] in self._watches:
            return
        watch = self._inotify.add(directory / NAME, IN_MODIFY)
        if watch >= 0:
            self._watches[watch] = directory
            self._followed[directory] = watch
            self._look(directory, before=True)
            self.wake(directory)

    def forget(self, directory: Path) -> None:
        """The machine is no more; who reads its log is told."""
        self._logs.pop(directory, None)
        watch = self._followed.pop(directory, -1)
        if self._watches.pop(watch, None) is not None:
            self._inotify.remove(watch)
        self.wake(directory)

    def wake(self, directory: Path) -> None:
        """Let the readers of a log look again: it has grown, or its machine has ended."""
        for changed in self._readers.get(directory, ()):
            changed.set()

    @contextmanager
    def changes(self, directory: Path) -> Iterator[asyncio.Event]:
        """An event that is set whenever the log has changed."""
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
        if watch == OVERFLOW:  # guests wrote so much that nobody knows which
            changed = list(self._watches.values())
        else:
            changed = [self._watches[watch]] if watch in self._watches else []
        for directory in changed:
            self._look(directory)
            self.wake(directory)

    async def grown(
        self, directory: Path, place: int, changed: asyncio.Event, ended: Callable[[], bool]
    ) -> AsyncIterator[tuple[int, bytes]]:
        """What is appended to a log after a place in it, and where, until its machine has ended.

        The log need not be there yet, and may be emptied before all of it was read.
        """
        known = self._logs.setdefault(directory, _Log())  # it may be forgotten before it is read
        while True:
            over = ended()  # asked first: what was printed before the end is still read
            while True:
                place, chunk = _from(directory, known.emptied, place)
                if not chunk:
                    break
                yield place, chunk
                place += len(chunk)
            if over:
                return
            await changed.wait()
            changed.clear()

    def kept(
        self, directory: Path, *, lines: int | None = None, since: float | None = None
    ) -> "Kept":
        """What is kept of a log: its last lines, and of what was written from a moment on."""
        known = self._logs.get(directory) or _Log()
        older, newer = (_content(directory / name) for name in (OLDER, NAME))
        whole, begin = older + newer, known.emptied - len(older)
        if since is not None:
            cut = max(0, known.times.since(since) - begin)
            whole = whole[whole.rfind(b"\n", 0, cut) + 1 :] if cut < len(whole) else b""
        shown = _last_lines(whole, lines)
        return Kept(shown, place=known.emptied + len(newer) - len(shown))

    def written(self, directory: Path, place: int) -> float:
        """When what stands at a place of a log was written, in seconds since 1970."""
        known = self._logs.get(directory)
        moment = known.times.at(place) if known is not None else None
        return time.time() if moment is None else moment

    def _look(self, directory: Path, *, before: bool = False) -> None:
        """Note how far a log has come; ``before``: nobody saw when."""
        known = self._logs.setdefault(directory, _Log())
        with suppress(FileNotFoundError):
            found = (directory / NAME).stat()
            moment = found.st_mtime if before else time.time()
            known.times.note(known.emptied + found.st_size, moment)
            if found.st_size > LARGEST_BYTES and _is_emptied(directory, found.st_size):
                known.emptied += found.st_size


def _is_emptied(directory: Path, size: int) -> bool:
    """Keep the end of a log elsewhere and empty it; false where that failed, which is logged.

    Only the end is copied: a log may have grown for days while no manager was there.
    """
    path = directory / NAME
    try:
        with path.open("rb") as file:
            file.seek(size - LARGEST_BYTES)
            files.replace(directory / OLDER, file.read(LARGEST_BYTES))
        os.truncate(path, 0)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("console log cannot be kept within bounds", path=str(path), error=str(error))
        return False
    return True


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _last_lines(kept: bytes, lines: int | None) -> bytes:
    if lines is None:
        return kept
    if lines == 0:
        return b""
    at = len(kept.removesuffix(b"\n"))
    for _ in range(lines):
        at = kept.rfind(b"\n", 0, at)
        if at < 0:
            return kept
    return kept[at + 1 :]


def _from(directory: Path, emptied: int, place: int) -> tuple[int, bytes]:
    """A piece of a log from a place on, and where it begins: what is not kept is passed over."""
    if place < emptied:
        with suppress(FileNotFoundError), (directory / OLDER).open("rb") as file:
            place = max(place, emptied - os.fstat(file.fileno()).st_size)
            file.seek(place - emptied, os.SEEK_END)
            if chunk := file.read(_CHUNK):
                return place, chunk
        place = emptied
    with suppress(FileNotFoundError), (directory / NAME).open("rb") as file:
        if place - emptied > os.fstat(file.fileno()).st_size:
            place = emptied  # somebody else has emptied it
        file.seek(place - emptied)
        return place, file.read(_CHUNK)
    return place, b""
