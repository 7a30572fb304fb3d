"""Encoded watch events, shared by all watchers of the same form."""

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

CHUNK_BYTES: Final = 64 << 10
"""Frames are joined into chunks up to about this size; a larger frame is sent alone."""
CHUNK_FRAMES: Final = 64
_LARGE: Final = 32 << 10
"""A frame of more bytes is sent alone, so that all pending watchers share it.

A larger object is encoded as protobuf in a thread, as lists are."""
_MAX_CACHED: Final = 512
_MAX_CACHED_BYTES: Final = 8 << 20

Chunk = bytes | Callable[[], Awaitable[bytes]]
"""Encoded frames; or a coroutine function that encodes a single large one in a thread.

A function, and no awaitable, as chunks are listed before they are sent: one that is never sent is
then never encoded, and no coroutine is left that nothing awaits.
"""
FrameKey = tuple[int, str, str, bool, Form, str, int]
"""All that a frame depends on: revision, event type, API version, whether it is protobuf, form,
table rows' includeObject, time of ages."""


async def encoded(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk."""
    return chunk if isinstance(chunk, bytes) else await chunk()


class FrameCache:
    """The latest frames, for other watchers of the same changes.

    Watchers receive a change one right after the other, so a small cache suffices.
    """

    def __init__(self) -> None:
        self._frames: dict[FrameKey, bytes] = {}
        self._size = 0
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    def get(self, key: FrameKey) -> bytes | None:
        return self._frames.get(key)

    def put(self, key: FrameKey, frame: bytes) -> None:
        self._size += len(frame) - len(self._frames.pop(key, b""))
        self._frames[key] = frame
        while len(self._frames) > _MAX_CACHED or self._size > _MAX_CACHED_BYTES:
            self._size -= len(self._frames.pop(next(iter(self._frames))))

    async def encode_in_thread(
        self, key: FrameKey, sender: str, write: Callable[[], bytes]
    ) -> bytes:
        """Return a frame encoded in a thread: once for all waiters, one at a time per sender."""
        async with self._lock(sender), self._lock(key):
            frame = self.get(key)
            if frame is None:
                frame = await finished(asyncio.to_thread(write))
                self.put(key, frame)
            return frame

    def _lock(self, lock_key: object) -> asyncio.Lock:
        return self._locks.setdefault(lock_key, asyncio.Lock())


class Frames:
    """Encodes watch events in the form that one call accepts."""

    def __init__(
        self, call: Call, presenter: Presenter, selector: Selector, frame_cache: FrameCache
    ) -> None:
        self._call = call
        self._presenter = presenter
        self._frame_cache = frame_cache
        self._protobuf = call.prefers_protobuf
        self.selector = selector

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The response headers with the content type of the frames."""
        if not self._protobuf:
            return list(JSON_HEADERS)
        content_type = ("content-type", f"{PROTOBUF};stream=watch")
        return [content_type, *(each for each in JSON_HEADERS if each[0] != content_type[0])]

    def initial(self, records: Iterable[Record]) -> Iterator[Chunk]:
        """Yield chunks of the current objects; unselected ones count as work, too."""
        matches = self.selector.matches
        return _chunks(
            self._initial_frame(record) if matches(record) else b"" for record in records
        )

    def _initial_frame(self, record: Record) -> Chunk:
        """Return the frame of a current object; cached only if it is large."""
        if record.size < _LARGE:
            return self._encode("ADDED", record)
        return self._cached_frame("ADDED", record, record.revision)

    def changes(self, events: Iterable[Event]) -> Iterator[Chunk]:
        """Yield chunks of the frames of changes."""
        if not self.selector:
            return _chunks(self._frame(_type(event), event) for event in events)
        return _chunks(self._selected_frame(event) for event in events)

    def _selected_frame(self, event: Event) -> Chunk:
        """Return a change's frame for a selector: ADDED on first match, DELETED after the last."""
        matches = self.selector.matches
        before = event.previous is not None and matches(event.previous)
        after = not event.deleted and matches(event.record)
        if after:
            return self._frame("MODIFIED" if before else "ADDED", event)
        return self._frame("DELETED", event) if before else b""

    def _frame(self, event_type: str, event: Event) -> Chunk:
        """Return the frame of a change, shared by all watchers of this form."""
        return self._cached_frame(event_type, event.record, event.revision, event)

    def _cached_frame(
        self, event_type: str, record: Record, revision: int, event: Event | None = None
    ) -> Chunk:
        key = (
            revision,
            event_type,
            self._call.api_version,
            self._protobuf,
            *self._presenter.variant,
        )
        frame = self._frame_cache.get(key)
        if frame is None or self._presenter.is_first:
            if event_type == "DELETED" and event is not None:
                record = _final_record(event)
            if self._protobuf and record.size >= _LARGE:
                write = partial(self._encode, event_type, record)
                return partial(
                    self._frame_cache.encode_in_thread, key, self._call.request.sender, write
                )
            first = self._presenter.is_first
            frame = self._encode(event_type, record)
            if not first:
                self._frame_cache.put(key, frame)
        return frame

    def _encode(self, event_type: str, record: Record) -> bytes:
        return self._encode_text(event_type, self._presenter.frame_object(record))

    def _encode_text(self, event_type: str, text: bytes) -> bytes:
        """Return the frame of an object that is encoded in JSON."""
        if not self._protobuf:
            return b'{"type":"%b","object":%b}\n' % (event_type.encode(), text)
        try:
            return writer.frame(event_type, writer.encode(msgspec.json.decode(text)))
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

    def _line(self, event_type: str, document: Document) -> bytes:
        return self._encode_text(event_type, encode(document))


def _chunks(frames: Iterable[Chunk]) -> Iterator[Chunk]:
    """Join frames into chunks, lazily, bounded in bytes and in work."""
    chunk: list[bytes] = []
    size = work = 0
    for frame in frames:
        work += 1
        if not isinstance(frame, bytes) or len(frame) >= _LARGE:
            yield b"".join(chunk)
            yield frame
            chunk, size, work = [], 0, 0
        elif frame:
            chunk.append(frame)
            size += len(frame)
        if size >= CHUNK_BYTES or work >= CHUNK_FRAMES:
            yield b"".join(chunk)
            chunk, size, work = [], 0, 0
    if chunk:
        yield b"".join(chunk)


def _type(event: Event) -> str:
    if event.deleted:
        return "DELETED"
    return "ADDED" if event.previous is None else "MODIFIED"


def _final_record(event: Event) -> Record:
    """Return the record for a DELETED event: of a deletion, or of an object no longer selected."""
    if event.deleted or event.previous is None:
        return event.record
    return _with_revision(event.previous, event.revision)


def _with_revision(record: Record, revision: int) -> Record:
    """Return an object's previous version with the revision at which it stopped matching."""
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
