"""The store: staged writes, group commits, and reads of what is committed."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, Self

from corral.api.encoding import encode
from corral.api.errors import ApiError, Gone, InternalError, StorageFull, Unavailable
from corral.api.object import Document, Key
from corral.metrics import Histogram
from corral.store.commit import Commit
from corral.store.damage import Damaged, DamagedObjects, classify
from corral.store.memory import Memory, RecordRange, Retention, obsolete
from corral.store.object_version import NO_LABELS, Event, Record, key_of, labels_of, require_size
from corral.store.row import Row
from corral.store.sqlite import Log, lower_switch_interval
from corral.store.watch import Watch
from corral.store.write import Write, advances_deletion, split_deletions

_CLOSED: Final = "the server is shutting down; try again in a moment"


class Objects(Protocol):
    """Objects by the resource name of their kind: of a store, or of another API server."""

    def latest(self, kind: str, key: Key) -> Record | None:
        """Return the latest version of an object; None if there is none."""

    def latest_all(self, kind: str, namespace: str = "") -> dict[Key, Record]:
        """Return the latest version of all objects of a kind, in one namespace or in all."""


class Store:
    """Objects by kind and key, with one revision counter over all of them.

    All methods are called from one event loop.  A write is checked against ``latest`` and staged
    without an ``await`` between: that is the transaction.  Writes staged while a commit is in
    flight share the next one.  ``lifetimes``: seconds after their last write in which objects of a
    kind expire.  ``make_room`` frees disk space that is reserved for deletions; it returns False if
    none is left.
    """

    def __init__(
        self,
        log: Log,
        *,
        threaded: bool = True,
        retention: Retention | None = None,
        lifetimes: Mapping[str, int] | None = None,
        make_room: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self.wal_repair = log.wal_repair
        self._executor = (
            ThreadPoolExecutor(1, "corral-store", lower_switch_interval) if threaded else None
        )
        self._retention = retention or Retention()
        self._lifetimes = lifetimes or {}
        self._clock = clock
        self._make_room = make_room
        scan = classify(log.rows(), self._lifetimes)
        self._damaged = DamagedObjects(scan.damaged)
        self._memory = Memory(max(log.compacted, scan.floor))
        obsolete_revisions = [revision for row in scan.whole for revision in self._load(row)]
        self._garbage: Sequence[int] = (*scan.garbage, *obsolete_revisions)
        self._last_revision = self._memory.revision
        self._latest: dict[tuple[str, Key], Write] = {}
        self._staged: list[Write] = []
        self._busy = False
        self._closed = False
        self._idle: asyncio.Future[None] | None = None
        self._revision_reached: asyncio.Future[None] | None = None
        self._error_message = ""
        self.commits = Histogram()
        """Durations of commits, for metrics."""
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)

    @classmethod
    def open(
        cls, path: Path, *, make_room: Callable[[], bool] = lambda: False,
        lifetimes: Mapping[str, int] | None = None,
    ) -> Self:  # fmt: skip
        """Open the store in a file, created if missing.  Raises LogError."""
        store = cls(log := Log(path), lifetimes=lifetimes, make_room=make_room)
        log.checkpoint(make_room)
        return store

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time) -> Self:
        """Return a store in memory, which commits without a thread."""
        return cls(Log(None), threaded=False, clock=clock)

    def _load(self, row: Row) -> Sequence[int]:
        """Load a row; return the revisions that it makes obsolete, if it is outside the window."""
        labels = labels_of(row.data)
        key = key_of(row.namespace, row.name)
        record = Record.of(row.kind, key, row.revision, row.written, row.data, labels=labels)
        event = self._memory.apply(record, deleted=bool(row.deleted))
        return tuple(obsolete(event)) if row.revision <= self._memory.compacted else ()

    # ------------------------------------------------------------------ reads

    @property
    def revision(self) -> int:
        """The newest revision that is on disk."""
        return self._memory.revision

    @property
    def compacted(self) -> int:
        """The oldest revision for watches and lists."""
        return self._memory.compacted

    def get(self, kind: str, key: Key) -> Record | None:
        """Return the committed version of an object.  Raises StoreReadError if it is damaged."""
        record = self._memory.tables[kind].records.get(key)
        if record is None:
            self._damaged.require(kind, key)
        return record

    @property
    def damaged(self) -> Iterator[Damaged]:
        """The objects damaged on disk: in no list, until they are deleted or restored."""
        return iter(self._damaged)

    @property
    def error_message(self) -> str:
        """Error of the last commit; "" if it succeeded."""
        return self._error_message

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return sum(map(len, self._watches.values()))

    def count(self, kind: str) -> int:
        return len(self._memory.tables[kind].records)

    def last_changed(self, kind: str) -> int:
        """Return the revision of a kind's last change; 0 if there was none."""
        return self._memory.tables[kind].revision

    def changes(self, kind: str, since: int) -> list[Event]:
        """Return the changes of a kind after a revision, oldest first.

        Raises Gone if that revision is compacted.
        """
        self._require_kept(since)
        return self._memory.tables[kind].changes_since(since)

    def objects(self, kind: str, namespace: str = "") -> list[Record]:
        """Return the committed objects of a kind in key order."""
        return self._memory.tables[kind].within(namespace)

    def record_range(
        self, kind: str, namespace: str = "", *, after: Key | None = None, revision: int = 0
    ) -> RecordRange:
        """Return the objects of a kind that come after a key, now or at a revision.

        Raises Gone if that revision is compacted.
        """
        table = self._memory.tables[kind]
        if not revision or revision >= self._memory.revision:
            return table.record_range(namespace, after)
        self._require_kept(revision)
        return table.record_range_at(namespace, after, revision)

    def watch(self, kind: str, since: int, namespace: str = "", name: str = "") -> Watch:
        """Open a watch of the changes after a revision, which may lie in the future.

        Raises Gone if that revision is compacted.
        """
        self._require_kept(since)
        watches = self._watches[kind]
        watch = Watch(since, namespace=namespace, name=name, on_close=watches.discard)
        watch.publish(self._memory.tables[kind].changes_since(since))
        watches.add(watch)
        if self._closed:
            watch.end(self.revision)
        return watch

    def end_watches(self, kind: str) -> None:
        """End all watches of a kind that is no longer served."""
        for watch in tuple(self._watches[kind]):
            watch.end(self.revision)

    def _require_kept(self, revision: int) -> None:
        if revision < self._memory.compacted:
            raise Gone(f"too old resource version: {revision} ({self._memory.compacted})")

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until a revision is committed; the caller sets the deadline."""
        while self.revision < revision:
            self._revision_reached = (
                self._revision_reached or asyncio.get_running_loop().create_future()
            )
            await asyncio.shield(self._revision_reached)

    # ----------------------------------------------------------------- writes

    def latest(self, kind: str, key: Key) -> Record | None:
        """Return the latest version, committed or staged: the next write is based on it.

        Raises StoreReadError if it is damaged.
        """
        write = self._latest.get((kind, key))
        if write is None:
            return self.get(kind, key)
        return None if write.deleted else write.record

    def latest_all(self, kind: str, namespace: str = "") -> dict[Key, Record]:
        """Return the ``latest`` versions of a kind, or of one namespace, as a new dictionary."""
        table = self._memory.tables[kind]
        if namespace:
            scan = {record.key: record for record in table.within(namespace)}
        else:
            scan = dict(table.records)
        for (of, key), write in self._latest.items():
            if of != kind or namespace not in ("", key.namespace):
                continue
            if write.deleted:
                scan.pop(key, None)
            else:
                scan[key] = write.record
        return scan

    async def durable(self, record: Record) -> Record:
        """Wait until a version that ``latest`` returned is committed."""
        write = self._latest.get((record.kind, record.key))
        if write is not None:
            await write.done()
        return record

    def write(self, kind: str, key: Key, document: Document) -> asyncio.Future[Record]:
        """Stage a new version; the future is done when it is committed.

        The document's ``metadata.resourceVersion`` is set here.  Raises TooLarge.
        """
        return self._stage(kind, key, document, deleted=False)

    def delete(self, kind: str, key: Key, document: Document) -> asyncio.Future[Record]:
        """Stage the deletion of an object, with the final state for its watch events."""
        return self._stage(kind, key, document, deleted=True)

    def discard(self, kind: str, key: Key) -> asyncio.Future[None]:
        """Stage the deletion of a damaged object, without a watch event.  Raises KeyError."""
        if self._closed:
            raise Unavailable(_CLOSED)
        done = self._damaged.stage(kind, key)
        self._schedule_commit()
        return done

    def _stage(
        self, kind: str, key: Key, document: Document, *, deleted: bool
    ) -> asyncio.Future[Record]:
        if self._closed:
            raise Unavailable(_CLOSED)
        revision = self._last_revision + 1
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(revision)
        data = encode(document)
        before = self.latest(kind, key)
        if not deleted:
            require_size(data, metadata, before)
        self._last_revision = revision
        now, labels = int(self._clock()), metadata.get("labels") or NO_LABELS
        key = key_of(*key) if before is None else before.key
        if before is not None and labels == before.labels:  # share equal labels between versions
            labels = before.labels
        record = Record.of(kind, key, revision, now, data, labels=labels)
        write = Write(record, deleted, is_deletion=deleted or advances_deletion(document, before))
        self._latest[kind, key] = write
        self._staged.append(write)
        self._schedule_commit()
        return write.done()

    def _schedule_commit(self) -> None:
        # Not at once: writes of other tasks that are ready in this iteration join the commit.
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        batch, self._staged = self._staged, []
        overdue = self._overdue_events()
        commit = Commit(
            writes=batch,
            window_changes=len(overdue),
            forget=[*self._garbage, *(each for event in overdue for each in obsolete(event))],
            compacted=overdue[-1].revision if overdue else self._memory.compacted,
            discards=self._damaged.pop_staged(),
            started=time.monotonic(),
        )
        if self._executor is None:
            commit.run(self._log, self._make_room)
            self._finish(commit)
        else:
            call_soon = asyncio.get_running_loop().call_soon_threadsafe
            self._executor.submit(self._run, commit, call_soon)

    def _run(self, commit: Commit, call_soon: Callable[..., object]) -> None:
        """Commit, on the store's thread."""
        commit.run(self._log, self._make_room)
        call_soon(self._finish, commit)

    def _finish(self, commit: Commit) -> None:
        """Publish a finished commit, and fail the writes that depend on failed ones."""
        self.commits.observe(time.monotonic() - commit.started)
        try:
            self._error_message = commit.error_message
            if commit.error is not None:
                self._fail(commit, commit.error)
            if commit.is_stored:
                self._garbage = ()
                self._forget(commit.window_changes)
                self._memory.pack(self._clock())
                self._damaged.drop(commit.discards)
                self._publish(commit.writes)
        finally:  # an error in publishing must not block the next commit
            self._busy = bool(self._staged) or self._damaged.is_staged
            if self._busy:
                self._commit()
            elif self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    def _forget(self, count: int) -> None:
        """Compact the window, and end the watches that lag behind it."""
        self._memory.forget(count)
        for watches in self._watches.values() if count else ():
            for watch in tuple(watches):
                watch.forget(self._memory.compacted)

    def _publish(self, batch: Sequence[Write]) -> None:
        events: defaultdict[str, list[Event]] = defaultdict(list)
        for write in batch:
            record = write.record
            if self._latest.get(write.address) is write:
                del self._latest[write.address]
            events[record.kind].append(self._memory.apply(record, deleted=write.deleted))
            write.succeed()
        if self._revision_reached is not None:
            self._revision_reached.set_result(None)
            self._revision_reached = None
        for kind, changes in events.items():
            for watch in tuple(self._watches[kind]):
                watch.publish(changes)

    def _fail(self, commit: Commit, error: Exception) -> None:
        """Fail the writes of a failed commit; on a full disk, staged deletions are retried."""
        full = isinstance(error, StorageFull)
        deletions, rest = (
            split_deletions(self._staged, commit.failed) if full else ([], self._staged)
        )
        self._staged = deletions
        stored = commit.writes if commit.is_stored else ()
        self._latest = {each.address: each for each in (*stored, *deletions)}
        kind = type(error) if isinstance(error, ApiError) else InternalError
        for write in (*commit.failed, *rest):
            write.fail(kind, self._error_message)
        for discard in () if commit.is_stored else commit.discards:
            discard.fail(kind, self._error_message)

    # ------------------------------------------------------------ maintenance

    def _overdue_events(self) -> list[Event]:
        return self._memory.overdue(self._retention, self._clock())

    def _expire(self) -> None:
        """Stage the deletion of objects past their kind's lifetime."""
        for kind, seconds in self._lifetimes.items():
            limit = self._clock() - seconds
            for record in self.objects(kind):
                if record.written < limit and self.latest(kind, record.key) is record:
                    # Nothing waits for it: on a full disk, the next round tries again.
                    self.delete(kind, record.key, record.document()).add_done_callback(
                        asyncio.Future.exception
                    )

    async def tidy(self) -> None:
        """Delete expired objects, and compact the window."""
        self._expire()
        await self._wait_idle()
        while not self._busy and self._overdue_events():
            self._busy = True
            self._commit()
            await self._wait_idle()
            if self._error_message:
                return  # the commit failed: the next round tries again

    async def run(self, *, interval_seconds: float = 30) -> None:
        """Compact the window while there are no writes; runs until cancelled.

        The file does not shrink: new rows reuse the space of compacted ones.
        """
        while True:
            await asyncio.sleep(interval_seconds)
            await self.tidy()

    async def _wait_idle(self) -> None:
        while self._busy:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Commit staged writes, end all watches, close the file."""
        self._closed = True
        await self._wait_idle()
        for watches in self._watches.values():
            for watch in tuple(watches):
                watch.end(self.revision)
        if self._executor is not None:
            self._executor.shutdown()
        self._log.close()
