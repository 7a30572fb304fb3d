"""SQLite's write-ahead log where the disk has damaged it: what was acknowledged is not to vanish.

SQLite reads it up to the first frame that does not fit its checksum, and drops the rest without a
word: that is right for a write that a power cut has torn, which is the last one.  Where whole ones
follow, the frame was on the disk before them.  It is taken as it is then: mostly a later frame
holds the same page, and else the checksums of rows tell what is damaged.  Where not even the number
of its page is left, as in a block of zeros, that page stays as it was before.  The head of the log
is made anew from frames that follow each other.

The format: https://www.sqlite.org/fileformat2.html#walformat.  It is looked at only where a manager
was killed, and takes 0.1 s for the usual 4 MB.
"""

import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from corral import files

_HEAD: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = {0x377F0682: "<II", 0x377F0683: ">II"}
"""And in which order of bytes the words are summed up."""
_NATIVE_MAGIC: Final = 0x377F0682 + (sys.byteorder == "big")
_VERSION: Final = 3007000
_PAGE_SIZES: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768)
"""And 65536, which a store's head calls 1."""
_KEPT: Final = ".damaged"

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A page that was written; ``fits``: whether it is as it was, by the sum before it.

    ``pages``: how many the store has, where the frame ends a transaction of this log.  What lies in
    the file behind the end of a log are frames of the logs before it, which have other salts.
    """

    start: int
    page: int
    pages: int
    fits: bool


@dataclass(slots=True)
class _Log:
    """A write-ahead log in memory."""

    content: bytearray
    order: str
    page_bytes: int
    salts: Sum
    first: Sum
    has_new_head: bool = False

    @classmethod
    def read(cls, content: bytes) -> "_Log | None":
        """None for what SQLite takes for none at all."""
        if len(content) < _HEAD.size:
            return None
        magic, _, page_bytes, _, *rest = _HEAD.unpack_from(content)
        salts, first = (rest[0], rest[1]), (rest[2], rest[3])
        order = _MAGIC.get(magic)
        if order is None or _sum((0, 0), content[: _HEAD.size - 8], order) != first:
            return None
        return cls(bytearray(content), order, page_bytes, salts, first)

    @classmethod
    def headless(cls, content: bytes, page_bytes: int) -> "_Log | None":
        """A log whose head is damaged, with a new one; None where nothing tells that it is a log.

        Nor where the first frame is of another log than those behind it: that one has just begun.
        """
        magic = _NATIVE_MAGIC
        log = cls(bytearray(content), _MAGIC[magic], page_bytes, (0, 0), (0, 0), has_new_head=True)
        log.salts = log._agreed_salts()
        if log.salts == (0, 0):
            return None
        _HEAD.pack_into(log.content, 0, magic, _VERSION, page_bytes, 0, *log.salts, 0, 0)
        log.first = _sum((0, 0), log.content[: _HEAD.size - 8], log.order)
        struct.pack_into(">2I", log.content, _HEAD.size - 8, *log.first)
        return log

    def _agreed_salts(self) -> Sum:
        """The salts of the first two frames of which one follows the other; zeros where none do."""
        size, stated, before = _FRAME.size + self.page_bytes, (0, 0), (0, 0)
        for start in range(_HEAD.size, len(self.content) - size + 1, size):
            page, _, *rest = _FRAME.unpack_from(self.content, start)
            salts, stored = (rest[0], rest[1]), (rest[2], rest[3])
            if page and start > _HEAD.size and self._sum_of(start, before) == stored:
                return salts if stated in (salts, (0, 0)) else (0, 0)
            stated, before = stated if stated != (0, 0) else salts, stored
        return 0, 0

    def frames(self) -> Iterator[_Frame]:
        before, size = self.first, _FRAME.size + self.page_bytes
        for start in range(_HEAD.size, len(self.content) - size + 1, size):
            page, pages, *rest = _FRAME.unpack_from(self.content, start)
            is_ours, stored = (rest[0], rest[1]) == self.salts, (rest[2], rest[3])
            fits = is_ours and self._sum_of(start, before) == stored
            yield _Frame(start, page, pages if is_ours else 0, fits)
            before = stored

    def _sum_of(self, start: int, before: Sum) -> Sum:
        page = start + _FRAME.size
        head = _sum(before, self.content[start : start + 8], self.order)
        return _sum(head, self.content[page : page + self.page_bytes], self.order)

    def repeat(self, lost: _Frame, whole: _Frame) -> None:
        """Put the page of the frame before, or of the next one, in the place of one that is lost.

        To write a page twice in a row changes nothing.
        """
        page, size = whole.start + _FRAME.size, self.page_bytes
        struct.pack_into(">2I", self.content, lost.start, whole.page, lost.pages)
        target = lost.start + _FRAME.size
        self.content[target : target + size] = self.content[page : page + size]

    def accept(self, frames: list[_Frame]) -> None:
        """Give the first frames sums that fit what they hold."""
        before = self.first
        for frame in frames:
            before = self._sum_of(frame.start, before)
            struct.pack_into(">4I", self.content, frame.start + 8, *self.salts, *before)


def _sum(before: Sum, content: bytes | bytearray, order: str) -> Sum:
    first, second = before
    for one, other in struct.iter_unpack(order, content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def is_left(store: Path) -> bool:
    """Whether a store has a write-ahead log: it is open, or its manager was killed."""
    path = _beside(store)
    return path.exists() and path.stat().st_size > 0


def _beside(store: Path) -> Path:
    return store.with_name(f"{store.name}-wal")


def mend(store: Path) -> str:
    """Keep what follows a damaged frame; what was found, in words, and empty where all is well.

    Nobody may have the store open.  The files as they were stay beside it.  Raises OSError.
    """
    path = _beside(store)
    log = _read(path.read_bytes(), store) if path.exists() else None
    if log is None:
        return ""
    frames = list(log.frames())
    written = _written(frames)
    damaged = sum(not frame.fits for frame in frames[:written]) + log.has_new_head
    if not damaged:
        return ""
    kept = [shutil.copy2(each, f"{each}{_KEPT}") for each in (path, store)]
    lost = _fill_gaps(log, frames, written)
    log.accept([*frames[:written], *takewhile(lambda frame: frame.fits, frames[written:])])
    files.replace(path, bytes(log.content), durable=True)
    store.with_name(f"{store.name}-shm").unlink(missing_ok=True)
    gaps = f" {lost} pages are lost: objects may be as before, or missing." if lost else ""
    return (
        f"{path}: was damaged in {damaged} of {written + 1} places; what follows was kept.{gaps} "
        f"As it was: {', '.join(map(str, kept))}"
    )


def _read(content: bytes, store: Path) -> _Log | None:
    return _Log.read(content) or _Log.headless(content, _page_bytes(store))


def _page_bytes(store: Path) -> int:
    """Of a store, as its head tells; SQLite's usual where that tells none."""
    head = b""
    if store.exists():
        with store.open("rb") as file:
            head = file.read(18)
    stated = int.from_bytes(head[16:18], "big")
    return {1: 65536, **{size: size for size in _PAGE_SIZES}}.get(stated, 4096)


def _fill_gaps(log: _Log, frames: list[_Frame], written: int) -> int:
    """Repeat a page wherever nothing tells which one was written; how often that is.

    SQLite takes a frame without the number of a page for the end of the log.
    """
    most = max(max(frame.page, frame.pages) for frame in frames if frame.fits)
    placed = [frame for frame in frames if 0 < frame.page <= most]
    lost = [frame for frame in frames[:written] if not 0 < frame.page <= most]
    for frame in lost:
        before = (each for each in reversed(placed) if each.start < frame.start)
        log.repeat(frame, next(before, placed[0]))
    return len(lost)


def _written(frames: list[_Frame]) -> int:
    """How many frames were surely on the disk: those of all transactions that another followed."""
    last = max((number for number, frame in enumerate(frames) if frame.fits), default=-1)
    commits = [number for number in range(last) if frames[number].pages]
    return commits[-1] + 1 if commits else 0
