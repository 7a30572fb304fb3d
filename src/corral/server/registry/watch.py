"""Watches: initial events, changes, bookmarks, and the end of the stream."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from itertools import islice

from corral.api.errors import ApiError, Details, Gone, Invalid, TooManyRequests
from corral.api.object import Key
from corral.api.request import Response
from corral.server.flowcontrol.fairness import Fairness
from corral.server.flowcontrol.memory_trim import MemoryTrim
from corral.server.registry import lists
from corral.server.registry.lists import Selector
from corral.server.registry.rest import Rest, wait_for_revision
from corral.server.registry.watch_backlog import Backlog
from corral.server.registry.watch_frames import (
    CHUNK_BYTES,
    CHUNK_FRAMES,
    Chunk,
    FrameCache,
    Frames,
    encoded,
)
from corral.server.request import accept, query
from corral.server.request.call import Call, storage
from corral.store import Record, RecordRange, Store, Watch

MIN_WAIT_SECONDS = 0.001
BOOKMARK_SECONDS = 60.0
"""The interval of bookmarks, as in Kubernetes.

Watches of this process get one at their end only: they have no connection that could break before,
and the bookmarks of a hundred of them were most of the wake-ups of an idle manager.
"""
MAX_WATCHES_PER_USER = 8192
"""Open watches per user: each takes some 40 KiB."""
_MIN_TIMEOUT_SECONDS = 1800
"""A watch without ``timeoutSeconds`` ends after this or up to twice as long, to spread the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch; ``since`` None begins with the current objects.

    ``bookmark_interval`` is the interval of bookmarks in seconds; infinite for a single one at the
    end.
    """

    since: int | None
    not_older_than: int
    bookmarks: bool
    bookmark_interval: float
    end_of_initial: bool
    seconds: float


def watch_options(call: Call, store: Store) -> WatchOptions:
    """Return the options in a call's query.  Raises Invalid and BadRequest."""
    options = call.query
    revision = query.revision(options) or 0
    match = options.get("resourceVersionMatch", "")
    initial_events = None
    if options.get("sendInitialEvents"):
        initial_events = query.flag(options, "sendInitialEvents")
        if match != "NotOlderThan":
            raise _forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
    elif match:
        raise _forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    bookmarks = query.flag(options, "allowWatchBookmarks")
    from_list = initial_events or (initial_events is None and not revision)
    since = None if from_list else revision or store.revision
    timeout = query.number(options, "timeoutSeconds")
    return WatchOptions(
        since=since,
        not_older_than=revision,
        bookmarks=bookmarks,
        bookmark_interval=math.inf if call.request.is_in_process else BOOKMARK_SECONDS,
        end_of_initial=bool(initial_events) and bookmarks,
        seconds=timeout or _MIN_TIMEOUT_SECONDS * random.uniform(1, 2),  # noqa: S311 - spreads load
    )


def _forbidden(field: str, message: str) -> Invalid:
    return query.bad_option(
        "ListOptions", field, f"Forbidden: {message}", reason="FieldValueForbidden"
    )


class Watches:
    """Opens watches, bounded per user.

    ``fairness`` schedules the encoding of initial events between the requests of other users.
    """

    def __init__(self, rest: Rest, fairness: Fairness) -> None:
        self._rest = rest
        self._fairness = fairness
        self._frame_cache = FrameCache()
        self._open: Counter[str] = Counter()
        self._backlog = Backlog()
        self._memory_trim = MemoryTrim()

    async def answer(self, call: Call) -> Response:
        """Respond with a stream of frames: JSON lines, or length-prefixed protobuf messages.

        Raises Invalid, BadRequest, NotAcceptable for other formats, Timeout, and TooManyRequests
        for a user with too many watches.
        """
        rest, store = self._rest, self._rest.store
        header = call.request.headers.get("accept", "")
        accept.require_stream_type(header, native=call.has_protobuf)
        presenter, selector = rest.presenter(call), Selector(call.kind, call.query)
        if call.name:
            selector.only(call.name)
        options = watch_options(call, store)
        sender = call.request.sender
        if not call.request.is_in_process and self._open[sender] >= MAX_WATCHES_PER_USER:
            raise TooManyRequests(
                f'user "{sender}" has {MAX_WATCHES_PER_USER} watches open; end some, and try again',
                details=Details(retry_after_seconds=1),
            )
        if options.since is None:
            await wait_for_revision(store, options.not_older_than)
        frames = Frames(call, presenter, selector, self._frame_cache)
        return Response(headers=frames.headers, body=self._count_open(call, frames, options))

    async def _count_open(
        self, call: Call, frames: Frames, options: WatchOptions
    ) -> AsyncGenerator[bytes, None]:
        user = call.request.sender  # the sender, also if it impersonates many others
        self._open[user] += 1
        try:
            async with aclosing(self._stream(call, frames, options)) as chunks:
                async for chunk in chunks:
                    with self._track_backlog(call, chunk):
                        yield chunk
        except ApiError as error:
            yield frames.error(error)
        finally:
            self._memory_trim.stream_ended()
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    def _track_backlog(self, call: Call, chunk: bytes) -> AbstractContextManager[None]:
        """Count a chunk as pending until the next one is requested."""
        abort = call.request.abort
        return (
            nullcontext()
            if abort is None
            else self._backlog.track(call.request.sender, chunk, abort)
        )

    async def _stream(
        self, call: Call, frames: Frames, options: WatchOptions
    ) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a watch.  Raises Gone if it starts or lags behind the window."""
        store, since = self._rest.store, options.since
        end = asyncio.get_running_loop().time() + options.seconds
        initial_events: Iterator[Chunk] = iter(())
        if since is None:
            initial_events, since = self._current_objects(call, frames), store.revision
        watch = store.watch(storage(call.kind), since, call.namespace, frames.selector.name or "")
        try:
            async for chunk in self._initial(call, initial_events):
                yield chunk
            if options.end_of_initial:
                yield frames.bookmark(since, end_of_initial=True)
            async for chunk in _changes(store, watch, frames, options, end):
                yield chunk
        finally:
            watch.close()

    def _current_objects(self, call: Call, frames: Frames) -> Iterator[Chunk]:
        """Return the chunks of the current objects; later ones are looked up when they are sent.

        So a slow watcher holds no old objects in memory; Gone is raised once they are compacted.
        """
        store, kind, since = self._rest.store, storage(call.kind), self._rest.store.revision
        if frames.selector.name or not since:
            return frames.initial(lists.candidates(store, call, frames.selector))

        def initial_chunks(after: Key | None = None) -> Iterator[Chunk]:
            while records := _first_records(
                store.record_range(kind, call.namespace, after=after, revision=since)
            ):
                after, chunks = records[-1].key, list(frames.initial(records))
                del records
                yield from chunks

        return initial_chunks()

    async def _initial(self, call: Call, chunks: Iterator[Chunk]) -> AsyncGenerator[bytes, None]:
        async def next_chunk(_call: Call) -> Chunk | None:
            return next(chunks, None)

        while (chunk := await self._fairness.serve(call, next_chunk)) is not None:
            if chunk:
                yield await encoded(chunk)
            await asyncio.sleep(0)  # a long list must not starve others


async def _changes(
    store: Store, watch: Watch, frames: Frames, options: WatchOptions, end: float
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of changes and bookmarks.  Raises Gone if the watch lags too far."""
    clock = asyncio.get_running_loop().time
    next_bookmark = clock() + options.bookmark_interval if options.bookmarks else end
    while (now := clock()) < end and not watch.finished:
        if now >= next_bookmark:
            yield frames.bookmark(_bookmark_revision(store, watch, options))
            next_bookmark = now + options.bookmark_interval
        # Not less than the clock's resolution: a shorter timer fires early.  The events are not
        # referenced while their chunks are sent, so that the window can free them.
        seconds = max(MIN_WAIT_SECONDS, min(end, next_bookmark) - now)
        for chunk in [each for each in frames.changes(await watch.next_events(seconds)) if each]:
            yield await encoded(chunk)
    if options.bookmarks and options.bookmark_interval == math.inf and watch.lost_after is None:
        yield frames.bookmark(_bookmark_revision(store, watch, options))
    if watch.lost_after is not None:
        raise Gone(f"too old resource version: {watch.lost_after} ({store.compacted})")


def _first_records(record_range: RecordRange) -> list[Record]:
    """Return the first objects of a range, about as many as fit into a chunk."""
    records: list[Record] = []
    size = 0
    for record in islice(record_range.records, CHUNK_FRAMES):
        records.append(record)
        size += record.size
        if size >= CHUNK_BYTES:
            break
    return records


def _bookmark_revision(store: Store, watch: Watch, options: WatchOptions) -> int:
    """Return the revision up to which a watcher has received all changes.

    Changes after the store ended the watch do not count: the next watch begins with them.
    """
    next_revision = watch.next_revision
    if next_revision is not None:
        return next_revision - 1
    revision = store.revision if watch.complete_until is None else watch.complete_until
    return max(revision, options.since or 0)
