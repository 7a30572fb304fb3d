"""Repair of SQLite's write-ahead log after damage by the disk: acknowledged commits must survive.

SQLite reads the log up to the first frame with a wrong checksum, and silently drops the rest: right
for a last write torn by a power cut.  But if valid frames follow, the damaged frame was on disk
before them.  It is then kept as it is: mostly a later frame holds the same page, and otherwise the
checksums of rows reveal the damage.  If even its page number is lost, as in a block of zeros, that
page keeps its earlier content.  A damaged header is rebuilt from consecutive valid frames.

The format: https://www.sqlite.org/fileformat2.html#walformat.  The log is checked only after a
manager was killed, which takes 0.1 s for the usual 4 MB.
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
"""Magic numbers, with the byte order of the checksum's words."""
_NATIVE_MAGIC: Final = 0x377F0682 + (sys.byteorder == "big")
_VERSION: Final = 3007000
_PAGE_SIZES: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Page sizes but for 65536, which the database header encodes as 1."""
_KEPT: Final = ".damaged"

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of the log; ``is_valid``: whether its checksum matches, given the previous one.

    ``pages``: the database's size in pages, if the frame commits a transaction of this log, else 0.
    Behind the end of a log the file holds frames of earlier logs, which have other salts.
    """

    start: int
    page: int
    pages: int
    is_valid: bool


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
        """Parse a log; None if SQLite would ignore it because of its header."""
        if len(content) < _HEAD.size:
            return None
        magic, _, page_bytes, _, *rest = _HEAD.unpack_from(content)
        salts, first = (rest[0], rest[1]), (rest[2], rest[3])
        order = _MAGIC.get(magic)
        if order is None or _sum((0, 0), content[: _HEAD.size - 8], order) != first:
            return None
        return cls(bytearray(content), order, page_bytes, salts, first)

    @classmethod
    def rebuild_head(cls, content: bytes, page_bytes: int) -> "_Log | None":
        """Parse a log with a damaged header, and rebuild that; None if no frames show it is a log.

        Also None if the first frame has other salts than those behind it: that log has just begun.
        """
        magic = _NATIVE_MAGIC
        log = cls(bytearray(content), _MAGIC[magic], page_bytes, (0, 0), (0, 0), has_new_head=True)
        log.salts = log._common_salts()
        if log.salts == (0, 0):
            return None
        _HEAD.pack_into(log.content, 0, magic, _VERSION, page_bytes, 0, *log.salts, 0, 0)
        log.first = _sum((0, 0), log.content[: _HEAD.size - 8], log.order)
        struct.pack_into(">2I", log.content, _HEAD.size - 8, *log.first)
        return log

    def _common_salts(self) -> Sum:
        """Return the salts of the first two frames with chained checksums; zeros without any."""
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
            is_valid = is_ours and self._sum_of(start, before) == stored
            yield _Frame(start, page, pages if is_ours else 0, is_valid)
            before = stored

    def _sum_of(self, start: int, before: Sum) -> Sum:
        page = start + _FRAME.size
        head = _sum(before, self.content[start : start + 8], self.order)
        return _sum(head, self.content[page : page + self.page_bytes], self.order)

    def copy_page(self, gaps: _Frame, source: _Frame) -> None:
        """Replace a lost frame's page by that of the previous or the next frame.

        Writing a page twice in a row changes nothing.
        """
        page, size = source.start + _FRAME.size, self.page_bytes
        struct.pack_into(">2I", self.content, gaps.start, source.page, gaps.pages)
        target = gaps.start + _FRAME.size
        self.content[target : target + size] = self.content[page : page + size]

    def rechecksum(self, frames: list[_Frame]) -> None:
        """Recompute the checksums of the first frames."""
        before = self.first
        for frame in frames:
            before = self._sum_of(frame.start, before)
            struct.pack_into(">4I", self.content, frame.start + 8, *self.salts, *before)


def _sum(before: Sum, content: bytes | bytearray, order: str) -> Sum:
    first, second = before
    for left_word, right_word in struct.iter_unpack(order, content):
        first = (first + left_word + second) & 0xFFFFFFFF
        second = (second + right_word + first) & 0xFFFFFFFF
    return first, second


def exists(store: Path) -> bool:
    """Return whether a store has a write-ahead log: it is open, or its manager was killed."""
    path = _wal_path(store)
    return path.exists() and path.stat().st_size > 0


def _wal_path(store: Path) -> Path:
    return store.with_name(f"{store.name}-wal")


def repair(store: Path) -> str:
    """Repair a log so that SQLite reads beyond damaged frames; return a message, "" if undamaged.

    No process may have the store open.  Copies of the files stay beside it.  Raises OSError.
    """
    path = _wal_path(store)
    log = _read(path.read_bytes(), store) if path.exists() else None
    if log is None:
        return ""
    frames = list(log.frames())
    committed = _committed_count(frames)
    damaged = sum(not frame.is_valid for frame in frames[:committed]) + log.has_new_head
    if not damaged:
        return ""
    kept = [shutil.copy2(each, f"{each}{_KEPT}") for each in (path, store)]
    lost = _fill_gaps(log, frames, committed)
    log.rechecksum(
        [*frames[:committed], *takewhile(lambda frame: frame.is_valid, frames[committed:])]
    )
    files.replace(path, bytes(log.content), durable=True)
    store.with_name(f"{store.name}-shm").unlink(missing_ok=True)
    gaps = f" {lost} pages are lost: objects may be as before, or missing." if lost else ""
    return (
        f"{path}: was damaged in {damaged} of {committed + 1} places; later frames were kept."
        f"{gaps} Copies of the damaged files: {', '.join(map(str, kept))}"
    )


def _read(content: bytes, store: Path) -> _Log | None:
    return _Log.read(content) or _Log.rebuild_head(content, _page_bytes(store))


def _page_bytes(store: Path) -> int:
    """Return the page size in a store's header; SQLite's default if that is damaged."""
    head = b""
    if store.exists():
        with store.open("rb") as file:
            head = file.read(18)
    stated = int.from_bytes(head[16:18], "big")
    return {1: 65536, **{size: size for size in _PAGE_SIZES}}.get(stated, 4096)


def _fill_gaps(log: _Log, frames: list[_Frame], committed: int) -> int:
    """Fill frames whose page number is lost with a neighbour's page; return their count.

    SQLite takes a frame without a page number for the end of the log.
    """
    most = max(max(frame.page, frame.pages) for frame in frames if frame.is_valid)
    placed = [frame for frame in frames if 0 < frame.page <= most]
    gaps = [frame for frame in frames[:committed] if not 0 < frame.page <= most]
    for frame in gaps:
        before = (each for each in reversed(placed) if each.start < frame.start)
        log.copy_page(frame, next(before, placed[0]))
    return len(gaps)


def _committed_count(frames: list[_Frame]) -> int:
    """Return how many frames were surely on disk: those of transactions followed by another."""
    last = max((number for number, frame in enumerate(frames) if frame.is_valid), default=-1)
    commits = [number for number in range(last) if frames[number].pages]
    return commits[-1] + 1 if commits else 0
