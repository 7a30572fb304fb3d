"""Watches: what there is, what changes, bookmarks, and how a stream ends."""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from corral.api.encoding import encode
from corral.api.errors import ApiError, Gone, Invalid
from corral.api.object import Document
from corral.api.wire import Response
from corral.server import lists, query
from corral.server.accept import Form
from corral.server.call import JSON_HEADERS, Call, storage
from corral.server.lists import Selector
from corral.server.present import Presenter
from corral.server.rest import Rest, reach
from corral.store import Event, Record, Store, Watch

TICK_SECONDS = 0.001
BOOKMARK_SECONDS = 60.0
PIECE = 256
"""Objects of a streamed list that are sent at once."""
_SHORTEST_SECONDS = 1800
"""A watch without ``timeoutSeconds`` ends after this, or up to twice as late: not all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the query asks of a watch; ``since`` None begins with the objects that there are."""

    since: int | None
    not_older_than: int
    bookmarks: bool
    end_of_initial: bool
    seconds: float


def wanted(call: Call, store: Store) -> Wanted:
    """Raises Invalid and BadRequest."""
    asked = call.query
    revision = query.revision(asked) or 0
    match = asked.get("resourceVersionMatch", "")
    initial = None
    if asked.get("sendInitialEvents"):
        initial = query.flag(asked, "sendInitialEvents")
        if match != "NotOlderThan":
            raise _refused(
                "sendInitialEvents",
                "resourceVersionMatch=NotOlderThan is required with sendInitialEvents",
            )
    elif match:
        raise _refused(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    bookmarks = query.flag(asked, "allowWatchBookmarks")
    listed = initial or (initial is None and not revision)
    since = None if listed else revision or store.revision
    timeout = query.number(asked, "timeoutSeconds")
    return Wanted(
        since=since,
        not_older_than=revision,
        bookmarks=bookmarks,
        end_of_initial=bool(initial) and bookmarks,
        seconds=timeout or _SHORTEST_SECONDS * random.uniform(1, 2),  # noqa: S311 - spreads load
    )


def _refused(field: str, message: str) -> Invalid:
    return query.bad_option(
        "ListOptions", field, f"Forbidden: {message}", reason="FieldValueForbidden"
    )


async def watch(rest: Rest, call: Call) -> Response:
    """A stream of frames, one JSON object a line."""
    store, presenter = rest.store, rest.presenter(call)
    selector = Selector(call.kind, call.query)
    if call.name:
        selector.only(call.name)
    asked = wanted(call, store)
    if asked.since is None:
        await reach(store, asked.not_older_than)
    frames = Frames(call, presenter, selector)
    return Response(headers=list(JSON_HEADERS), body=_stream(store, call, frames, asked))


async def _stream(
    store: Store, call: Call, frames: "Frames", asked: Wanted
) -> AsyncGenerator[bytes, None]:
    kind, since = storage(call.kind), asked.since
    clock = asyncio.get_running_loop().time
    end = clock() + asked.seconds
    present: list[Record] = []
    if since is None:
        present, since = lists.newest(store, call, frames.selector), store.revision
    try:
        changes = store.watch(kind, since, call.namespace, frames.selector.name or "")
    except Gone as gone:
        yield frames.error(gone)
        return
    try:
        for start in range(0, len(present), PIECE):
            if piece := frames.initial(present[start : start + PIECE]):
                yield piece
            await asyncio.sleep(0)  # a long list lets others have their turn
        if asked.end_of_initial:
            yield frames.bookmark(since, end_of_initial=True)
        async for piece in _changes(store, changes, frames, asked, end):
            yield piece
    finally:
        changes.close()


async def _changes(
    store: Store, changes: Watch, frames: "Frames", asked: Wanted, end: float
) -> AsyncGenerator[bytes, None]:
    clock = asyncio.get_running_loop().time
    bookmark = clock() + BOOKMARK_SECONDS if asked.bookmarks else end
    while (now := clock()) < end and not changes.finished:
        if now >= bookmark:
            yield frames.bookmark(_told(store, changes, asked))
            bookmark = now + BOOKMARK_SECONDS
        # Never less than a clock can tell: a timer of that length is over before it is.
        events = await changes.take(max(TICK_SECONDS, min(end, bookmark) - now))
        if piece := frames.changes(events):
            yield piece


def _told(store: Store, changes: Watch, asked: Wanted) -> int:
    """Up to which revision a watcher knows all that concerns it."""
    waits = changes.next_revision
    return max(store.revision, asked.since or 0) if waits is None else waits - 1


class Frames:
    """Watch events as bytes, in the form of one call."""

    def __init__(self, call: Call, presenter: Presenter, selector: Selector) -> None:
        self._call = call
        self._presenter = presenter
        self.selector = selector

    def initial(self, records: Iterable[Record]) -> bytes:
        return b"".join(
            self._frame("ADDED", record) for record in records if self.selector.matches(record)
        )

    def changes(self, events: Iterable[Event]) -> bytes:
        """All frames that a watcher gets of some changes, in one piece."""
        if not self.selector:
            return b"".join(self._frame(_type(event), event.record) for event in events)
        return b"".join(self._selected(event) for event in events)

    def _selected(self, event: Event) -> bytes:
        """To a watcher with a selector, objects come and go as they begin and cease to match."""
        matches = self.selector.matches
        before = event.previous is not None and matches(event.previous)
        after = not event.deleted and matches(event.record)
        if after:
            return self._frame("MODIFIED" if before else "ADDED", event.record)
        if not before or event.previous is None:
            return b""
        if event.deleted:
            return self._frame("DELETED", event.record)
        return self._frame("DELETED", _restamped(event.previous, event.revision))

    def _frame(self, kind: str, record: Record) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (
            kind.encode(),
            self._presenter.frame_object(record),
        )

    def bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        metadata: Document = {"resourceVersion": str(revision), "creationTimestamp": None}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        call = self._call
        document: Document = {"kind": call.kind.name, "apiVersion": call.api_version}
        if call.form is Form.TABLE:
            document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
            bookmark = {"columnDefinitions": [], "rows": [], "metadata": metadata, **document}
            return _line("BOOKMARK", bookmark)
        if call.form is Form.METADATA:
            document = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return _line("BOOKMARK", {**document, "metadata": metadata})

    def error(self, error: ApiError) -> bytes:
        return _line("ERROR", error.status())


def _type(event: Event) -> str:
    if event.deleted:
        return "DELETED"
    return "ADDED" if event.previous is None else "MODIFIED"


def _line(kind: str, document: Document) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), encode(document))


def _restamped(record: Record, revision: int) -> Record:
    """An object as it was, at the revision at which it went out of sight."""
    document = record.document()
    document["metadata"]["resourceVersion"] = str(revision)
    return Record(
        record.kind, record.key, revision, record.written, encode(document), record.labels
    )
