"""Watch events as bytes: made once for all watchers that want the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from corral.aio import finished
from corral.api.encoding import encode
from corral.api.errors import ApiError, InternalError
from corral.api.object import Document
from corral.api.protobuf import writer
from corral.server.registry.lists import Selector
from corral.server.request.accept import PROTOBUF, Form
from corral.server.request.call import JSON_HEADERS, Call
from corral.server.response.presenter import Presenter
from corral.store import Event, Record

PIECE_BYTES: Final = 64 << 10
"""Frames are sent together up to about this size; a larger one is sent alone."""
PIECE_FRAMES: Final = 64
_LARGE: Final = 32 << 10
"""A frame of more bytes is sent alone, so that all who wait for it hold the same.

An object of more is written in protobuf beside the loop, as lists of them are."""
_MOST_SHARED: Final = 512
_MOST_SHARED_BYTES: Final = 8 << 20

Piece = bytes | Callable[[], Awaitable[bytes]]
"""Frames; or what makes one that would keep the loop for longer than a turn."""
Address = tuple[int, str, str, bool, Form, str, int]
"""What a frame depends on: revision, type of change, version, whether it is protobuf, form, what
stands in rows, moment."""


class Shared:
    """The latest frames, for the other watchers that are told of the same changes.

    Those that wait for a change are told of it one right after the other, so few are enough.
    """

    def __init__(self) -> None:
        self._frames: dict[Address, bytes] = {}
        self._size = 0
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    def get(self, address: Address) -> bytes | None:
        return self._frames.get(address)

    def put(self, address: Address, frame: bytes) -> None:
        self._size += len(frame) - len(self._frames.pop(address, b""))
        self._frames[address] = frame
        while len(self._frames) > _MOST_SHARED or self._size > _MOST_SHARED_BYTES:
            self._size -= len(self._frames.pop(next(iter(self._frames))))

    async def written(self, address: Address, sender: str, write: Callable[[], bytes]) -> bytes:
        """A frame, written in a thread: once for all who wait for it, and one at a time of each."""
        async with self._lock(sender), self._lock(address):
            frame = self.get(address)
            if frame is None:
                frame = await finished(asyncio.to_thread(write))
                self.put(address, frame)
            return frame

    def _lock(self, of: object) -> asyncio.Lock:
        return self._locks.setdefault(of, asyncio.Lock())


class Frames:
    """Watch events as bytes, in the form of one call."""

    def __init__(
        self, call: Call, presenter: Presenter, selector: Selector, shared: Shared
    ) -> None:
        self._call = call
        self._presenter = presenter
        self._shared = shared
        self._protobuf = call.wants_protobuf
        self.selector = selector

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What says how the frames are written."""
        if not self._protobuf:
            return list(JSON_HEADERS)
        kind = ("content-type", f"{PROTOBUF};stream=watch")
        return [kind, *(each for each in JSON_HEADERS if each[0] != kind[0])]

    def initial(self, records: Iterable[Record]) -> Iterator[Piece]:
        """The objects that there are, in pieces; those that are not selected count as work, too."""
        matches = self.selector.matches
        return _pieces(self._present(record) if matches(record) else b"" for record in records)

    def _present(self, record: Record) -> Piece:
        """What tells of an object that there is: shared only where it is large."""
        if record.size < _LARGE:
            return self._made("ADDED", record)
        return self._shared_frame("ADDED", record, record.revision)

    def changes(self, events: Iterable[Event]) -> Iterator[Piece]:
        """All frames that a watcher gets of some changes, in pieces."""
        if not self.selector:
            return _pieces(self._frame(_type(event), event) for event in events)
        return _pieces(self._selected(event) for event in events)

    def _selected(self, event: Event) -> Piece:
        """To a watcher with a selector, objects come and go as they begin and cease to match."""
        matches = self.selector.matches
        before = event.previous is not None and matches(event.previous)
        after = not event.deleted and matches(event.record)
        if after:
            return self._frame("MODIFIED" if before else "ADDED", event)
        return self._frame("DELETED", event) if before else b""

    def _frame(self, kind: str, event: Event) -> Piece:
        """What all who watch in this form are told of a change."""
        return self._shared_frame(kind, event.record, event.revision, event)

    def _shared_frame(
        self, kind: str, record: Record, revision: int, event: Event | None = None
    ) -> Piece:
        address = (revision, kind, self._call.api_version, self._protobuf, *self._presenter.variant)
        frame = self._shared.get(address)
        if frame is None or self._presenter.is_first:
            if kind == "DELETED" and event is not None:
                record = _last_seen(event)
            if self._protobuf and record.size >= _LARGE:
                write = partial(self._made, kind, record)
                return partial(self._shared.written, address, self._call.request.sender, write)
            first = self._presenter.is_first
            frame = self._made(kind, record)
            if not first:
                self._shared.put(address, frame)
        return frame

    def _made(self, kind: str, record: Record) -> bytes:
        return self._written(kind, self._presenter.frame_object(record))

    def _written(self, kind: str, text: bytes) -> bytes:
        """A frame that tells of an object in JSON."""
        if not self._protobuf:
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), text)
        try:
            return writer.frame(kind, writer.encode(msgspec.json.decode(text)))
        except writer.UnwritableError as error:
            raise InternalError(str(error)) from None

    def bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        metadata: Document = {"resourceVersion": str(revision), "creationTimestamp": None}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        call = self._call
        document: Document = {"kind": call.kind.name, "apiVersion": call.api_version}
        if call.form is Form.TABLE:
            document = {"kind": "Table", "apiVersion": call.form_version}
            bookmark = {"columnDefinitions": None, "rows": [], "metadata": metadata, **document}
            return self._line("BOOKMARK", bookmark)
        if call.form is Form.METADATA:
            document = {"kind": "PartialObjectMetadata", "apiVersion": call.form_version}
        return self._line("BOOKMARK", {**document, "metadata": metadata})

    def error(self, error: ApiError) -> bytes:
        return self._line("ERROR", error.status())

    def _line(self, kind: str, document: Document) -> bytes:
        return self._written(kind, encode(document))


def _pieces(frames: Iterable[Piece]) -> Iterator[Piece]:
    """Frames put together: made when they are asked for, bounded in bytes and in work."""
    piece: list[bytes] = []
    size = work = 0
    for frame in frames:
        work += 1
        if not isinstance(frame, bytes) or len(frame) >= _LARGE:
            yield b"".join(piece)
            yield frame
            piece, size, work = [], 0, 0
        elif frame:
            piece.append(frame)
            size += len(frame)
        if size >= PIECE_BYTES or work >= PIECE_FRAMES:
            yield b"".join(piece)
            piece, size, work = [], 0, 0
    if piece:
        yield b"".join(piece)


def _type(event: Event) -> str:
    if event.deleted:
        return "DELETED"
    return "ADDED" if event.previous is None else "MODIFIED"


def _last_seen(event: Event) -> Record:
    """The object of a change that takes it out of sight."""
    if event.deleted or event.previous is None:
        return event.record
    return _restamped(event.previous, event.revision)


def _restamped(record: Record, revision: int) -> Record:
    """An object as it was, at the revision at which it went out of sight."""
    document = record.document()
    document["metadata"]["resourceVersion"] = str(revision)
    return Record.of(
        record.kind,
        record.key,
        revision,
        record.written,
        encode(document),
        labels=record.labels,
    )
