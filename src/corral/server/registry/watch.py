"""Watches: what there is, what changes, bookmarks, and how a stream ends."""

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
from corral.server.flowcontrol.memory_trim import Trimming
from corral.server.registry import lists
from corral.server.registry.lists import Selector
from corral.server.registry.rest import Rest, reach
from corral.server.registry.watch_backlog import Backlog
from corral.server.registry.watch_frames import PIECE_BYTES, PIECE_FRAMES, Frames, Piece, Shared
from corral.server.request import accept, query
from corral.server.request.call import Call, storage
from corral.store import Record, RecordRange, Store, Watch

TICK_SECONDS = 0.001
BOOKMARK_SECONDS = 60.0
"""How often a watcher hears how far it is, as in Kubernetes.

Those of this process hear it once, when their watch ends: no connection of theirs breaks before,
and the hundred of them were most of what woke a manager at rest.
"""
MOST_WATCHES = 8192
"""Watches that one user may have open: each takes some 40 KiB."""
_SHORTEST_SECONDS = 1800
"""A watch without ``timeoutSeconds`` ends after this, or up to twice as late: not all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the query asks of a watch; ``since`` None begins with the objects that there are.

    ``pause`` is how many seconds lie between bookmarks; without end where there is but the last.
    """

    since: int | None
    not_older_than: int
    bookmarks: bool
    pause: float
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
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
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
        pause=BOOKMARK_SECONDS if call.request.user is None else math.inf,
        end_of_initial=bool(initial) and bookmarks,
        seconds=timeout or _SHORTEST_SECONDS * random.uniform(1, 2),  # noqa: S311 - spreads load
    )


def _refused(field: str, message: str) -> Invalid:
    return query.bad_option(
        "ListOptions", field, f"Forbidden: {message}", reason="FieldValueForbidden"
    )


class Watches:
    """Opens watches, and knows how many each user has.

    ``turns`` lets others have theirs while the objects that there are are told.
    """

    def __init__(self, rest: Rest, turns: Fairness) -> None:
        self._rest = rest
        self._turns = turns
        self._shared = Shared()
        self._open: Counter[str] = Counter()
        self._backlog = Backlog()
        self._trimming = Trimming()

    async def answer(self, call: Call) -> Response:
        """A stream of frames: a JSON object a line, or messages with their lengths before them.

        Raises Invalid, BadRequest, NotAcceptable for what is neither, Timeout, and TooManyRequests
        for a user with too many.
        """
        rest, store = self._rest, self._rest.store
        header = call.request.headers.get("accept", "")
        accept.require_stream(header, native=call.has_protobuf)
        presenter, selector = rest.presenter(call), Selector(call.kind, call.query)
        if call.name:
            selector.only(call.name)
        asked = wanted(call, store)
        sender = call.request.sender
        if call.request.user is None and self._open[sender] >= MOST_WATCHES:
            raise TooManyRequests(
                f'user "{sender}" has {MOST_WATCHES} watches open; end some, and try again',
                details=Details(retry_after_seconds=1),
            )
        if asked.since is None:
            await reach(store, asked.not_older_than)
        frames = Frames(call, presenter, selector, self._shared)
        return Response(headers=frames.headers, body=self._counted(call, frames, asked))

    async def _counted(
        self, call: Call, frames: Frames, asked: Wanted
    ) -> AsyncGenerator[bytes, None]:
        name = call.request.sender  # who acts for many others is one
        self._open[name] += 1
        try:
            async with aclosing(self._stream(call, frames, asked)) as pieces:
                async for piece in pieces:
                    with self._held(call, piece):
                        yield piece
        except ApiError as error:
            yield frames.error(error)
        finally:
            self._trimming.ended()
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    def _held(self, call: Call, piece: bytes) -> AbstractContextManager[None]:
        """Count a piece until whoever sends it asks for the next."""
        cut = call.request.cut
        return nullcontext() if cut is None else self._backlog.hold(call.request.sender, piece, cut)

    async def _stream(
        self, call: Call, frames: Frames, asked: Wanted
    ) -> AsyncGenerator[bytes, None]:
        """Raises Gone where a watcher asks for what is forgotten, or lags so far behind."""
        store, since = self._rest.store, asked.since
        end = asyncio.get_running_loop().time() + asked.seconds
        initial: Iterator[Piece] = iter(())
        if since is None:
            initial, since = self._present(call, frames), store.revision
        changes = store.watch(storage(call.kind), since, call.namespace, frames.selector.name or "")
        try:
            async for piece in self._initial(call, initial):
                yield piece
            if asked.end_of_initial:
                yield frames.bookmark(since, end_of_initial=True)
            async for piece in _changes(store, changes, frames, asked, end):
                yield piece
        finally:
            changes.close()

    def _present(self, call: Call, frames: Frames) -> Iterator[Piece]:
        """The objects that there are, as pieces; what is not told yet is not held, but looked up.

        Raises Gone once it is so long ago that what was there is forgotten.
        """
        store, kind, since = self._rest.store, storage(call.kind), self._rest.store.revision
        if frames.selector.name or not since:
            return frames.initial(lists.newest(store, call, frames.selector))

        def told(after: Key | None = None) -> Iterator[Piece]:
            while records := _some(
                store.record_range(kind, call.namespace, after=after, revision=since)
            ):
                after, pieces = records[-1].key, list(frames.initial(records))
                del records
                yield from pieces

        return told()

    async def _initial(self, call: Call, pieces: Iterator[Piece]) -> AsyncGenerator[bytes, None]:
        async def make(_call: Call) -> Piece | None:
            return next(pieces, None)

        while (piece := await self._turns.serve(call, make)) is not None:
            if piece:
                yield piece if isinstance(piece, bytes) else await piece()
            await asyncio.sleep(0)  # a long list lets others have their turn


async def _changes(
    store: Store, changes: Watch, frames: Frames, asked: Wanted, end: float
) -> AsyncGenerator[bytes, None]:
    """Raises Gone where the watcher lags so far that changes which it should hear are forgotten."""
    clock = asyncio.get_running_loop().time
    bookmark = clock() + asked.pause if asked.bookmarks else end
    while (now := clock()) < end and not changes.finished:
        if now >= bookmark:
            yield frames.bookmark(_told(store, changes, asked))
            bookmark = now + asked.pause
        # Never less than a clock can tell: a timer of that length is over before it is.
        # The changes themselves are not held while they are told: the window may forget them.
        seconds = max(TICK_SECONDS, min(end, bookmark) - now)
        for piece in [each for each in frames.changes(await changes.next_events(seconds)) if each]:
            yield piece if isinstance(piece, bytes) else await piece()
    if asked.bookmarks and asked.pause == math.inf and changes.lost_after is None:
        yield frames.bookmark(_told(store, changes, asked))
    if changes.lost_after is not None:
        raise Gone(f"too old resource version: {changes.lost_after} ({store.compacted})")


def _some(stretch: RecordRange) -> list[Record]:
    """The first objects of a stretch, about as many as make a piece."""
    some: list[Record] = []
    size = 0
    for record in islice(stretch.records, PIECE_FRAMES):
        some.append(record)
        size += record.size
        if size >= PIECE_BYTES:
            break
    return some


def _told(store: Store, changes: Watch, asked: Wanted) -> int:
    """Up to which revision a watcher knows all that concerns it.

    Not what was stored after the store ended the watch: the next one begins with that.
    """
    waits = changes.next_revision
    if waits is not None:
        return waits - 1
    revision = store.revision if changes.complete_until is None else changes.complete_until
    return max(revision, asked.since or 0)
