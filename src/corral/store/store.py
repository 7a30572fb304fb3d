"""The store: staged writes, group commits, and reads of what is committed."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from corral.api.encoding import encode
from corral.api.errors import ApiError, Gone, InternalError, StorageFull, Unavailable
from corral.api.object import Document, Key
from corral.metrics import Histogram
from corral.store.commit import Commit
from corral.store.damage import Damaged, DamagedObjects, sort_out
from corral.store.memory import Memory, RecordRange, Retention, obsolete
from corral.store.object_version import NO_LABELS, Event, Record, key_of, labels_of, require_size
from corral.store.row import Row
from corral.store.sqlite import Log, hasten
from corral.store.watch import Watch
from corral.store.write import Write, goes_on, parted

_CLOSED: Final = "the server is shutting down; try again in a moment"


class Store:
    """Objects by kind and key, with one revision counter over all of them.

    Everything is called from one event loop.  A write is checked against ``latest`` and staged
    without an ``await`` between: that is the transaction.  Those that are staged while a commit is
    on its way to the disk share the next one.  ``lifetimes`` names kinds whose objects vanish that
    many seconds after they were last written.  ``make_room`` gives up disk space that is kept for
    the end of objects; False where none is left.
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
        self.mended = log.mended
        self._executor = ThreadPoolExecutor(1, "corral-store", hasten) if threaded else None
        self._retention = retention or Retention()
        self._lifetimes = lifetimes or {}
        self._clock = clock
        self._make_room = make_room
        found = sort_out(log.rows(), self._lifetimes)
        self._damaged = DamagedObjects(found.damaged)
        self._memory = Memory(max(log.compacted, found.floor))
        gone = [revision for row in found.whole for revision in self._load(row)]
        self._litter: Sequence[int] = (*found.litter, *gone)
        self._last_revision = self._memory.revision
        self._latest: dict[tuple[str, Key], Write] = {}
        self._staged: list[Write] = []
        self._busy = False
        self._closed = False
        self._idle: asyncio.Future[None] | None = None
        self._reached: asyncio.Future[None] | None = None
        self._fault = ""
        self.commits = Histogram()
        """How long commits took to be on disk, for metrics."""
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)

    @classmethod
    def open(
        cls, path: Path, *, make_room: Callable[[], bool] = lambda: False,
        lifetimes: Mapping[str, int] | None = None,
    ) -> Self:  # fmt: skip
        """The store in a file, made when missing.  Raises LogError when it cannot be used."""
        store = cls(log := Log(path), lifetimes=lifetimes, make_room=make_room)
        log.checkpoint(make_room)
        return store

    @classmethod
    def in_memory(cls, *, clock: Callable[[], float] = time.time) -> Self:
        """A store that forgets when it is closed and commits without a thread."""
        return cls(Log(None), threaded=False, clock=clock)

    def _load(self, row: Row) -> Sequence[int]:
        """Take a row in; which revisions nobody can ask for any more, where its past is unknown."""
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
        """Watches and lists can go back to this revision."""
        return self._memory.compacted

    def get(self, kind: str, key: Key) -> Record | None:
        """The object as it is on disk.  Raises StoreReadError where it is damaged."""
        record = self._memory.tables[kind].records.get(key)
        if record is None:
            self._damaged.require(kind, key)
        return record

    @property
    def damaged(self) -> Iterator[Damaged]:
        """The objects that the disk has damaged: in no list, until they are let go or restored."""
        return iter(self._damaged)

    @property
    def fault(self) -> str:
        """Why the last commit failed; empty when it did not."""
        return self._fault

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return sum(map(len, self._watches.values()))

    def count(self, kind: str) -> int:
        return len(self._memory.tables[kind].records)

    def changed(self, kind: str) -> int:
        """The revision at which an object of a kind changed last; 0 where none ever did."""
        return self._memory.tables[kind].revision

    def changes(self, kind: str, since: int) -> list[Event]:
        """The changes of a kind after a revision, oldest first.

        Raises Gone when that revision is not kept any more.
        """
        self._require(since)
        return self._memory.tables[kind].since(since)

    def objects(self, kind: str, namespace: str = "") -> list[Record]:
        """The objects of a kind in key order, as they are now."""
        return self._memory.tables[kind].within(namespace)

    def record_range(
        self, kind: str, namespace: str = "", *, after: Key | None = None, revision: int = 0
    ) -> RecordRange:
        """The objects of a kind that come after a key, now or as they were at a revision.

        Raises Gone when that revision is not kept any more.
        """
        table = self._memory.tables[kind]
        if not revision or revision >= self._memory.revision:
            return table.record_range(namespace, after)
        self._require(revision)
        return table.rewound(namespace, after, revision)

    def watch(self, kind: str, since: int, namespace: str = "", name: str = "") -> Watch:
        """The changes after a revision, which may lie in the future.

        Raises Gone when that revision is not kept any more.
        """
        self._require(since)
        watches = self._watches[kind]
        watch = Watch(since, namespace=namespace, name=name, on_close=watches.discard)
        watch.tell(self._memory.tables[kind].since(since))
        watches.add(watch)
        if self._closed:
            watch.end(self.revision)
        return watch

    def end_watches(self, kind: str) -> None:
        """Tell all who watch a kind that nothing more comes."""
        for watch in tuple(self._watches[kind]):
            watch.end(self.revision)

    def _require(self, revision: int) -> None:
        if revision < self._memory.compacted:
            raise Gone(f"too old resource version: {revision} ({self._memory.compacted})")

    async def reach(self, revision: int) -> None:
        """Wait until a revision is on disk; who calls sets the deadline."""
        while self.revision < revision:
            self._reached = self._reached or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._reached)

    # ----------------------------------------------------------------- writes

    def latest(self, kind: str, key: Key) -> Record | None:
        """The newest version, whether on disk or on its way: what the next write is based on.

        Raises StoreReadError where it is damaged.
        """
        write = self._latest.get((kind, key))
        if write is None:
            return self.get(kind, key)
        return None if write.deleted else write.record

    def newest(self, kind: str, namespace: str = "") -> dict[Key, Record]:
        """What ``latest`` answers of every object of a kind, or of a namespace's; a new one."""
        table = self._memory.tables[kind]
        if namespace:
            found = {record.key: record for record in table.within(namespace)}
        else:
            found = dict(table.records)
        for (of, key), write in self._latest.items():
            if of != kind or namespace not in ("", key.namespace):
                continue
            if write.deleted:
                found.pop(key, None)
            else:
                found[key] = write.record
        return found

    async def durable(self, record: Record) -> Record:
        """Wait until a version that ``latest`` answered is on disk."""
        write = self._latest.get((record.kind, record.key))
        if write is not None:
            await write.done()
        return record

    def write(self, kind: str, key: Key, document: Document) -> asyncio.Future[Record]:
        """Stage a new version; the future is done when it is on disk.

        The document's ``metadata.resourceVersion`` is set here.  Raises TooLarge.
        """
        return self._stage(kind, key, document, deleted=False)

    def delete(self, kind: str, key: Key, document: Document) -> asyncio.Future[Record]:
        """Stage the end of an object, with the last words that its watchers get."""
        return self._stage(kind, key, document, deleted=True)

    def discard(self, kind: str, key: Key) -> asyncio.Future[None]:
        """Stage the end of a damaged object, of which nobody was told.  Raises KeyError."""
        if self._closed:
            raise Unavailable(_CLOSED)
        done = self._damaged.stage(kind, key)
        self._begin()
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
        if before is not None and labels == before.labels:  # versions share what seldom changes
            labels = before.labels
        record = Record.of(kind, key, revision, now, data, labels=labels)
        write = Write(record, deleted, ends=deleted or goes_on(document, before))
        self._latest[kind, key] = write
        self._staged.append(write)
        self._begin()
        return write.done()

    def _begin(self) -> None:
        if not self._busy:  # not at once: whoever is ready in this turn of the loop comes along
            self._busy = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        batch, self._staged = self._staged, []
        past = self._overdue()
        commit = Commit(
            writes=batch,
            past=len(past),
            forget=[*self._litter, *(each for event in past for each in obsolete(event))],
            compacted=past[-1].revision if past else self._memory.compacted,
            discards=self._damaged.take(),
            began=time.monotonic(),
        )
        if self._executor is None:
            commit.run(self._log, self._make_room)
            self._settle(commit)
        else:
            tell = asyncio.get_running_loop().call_soon_threadsafe
            self._executor.submit(self._run, commit, tell)

    def _run(self, commit: Commit, tell: Callable[..., object]) -> None:
        """Commit, on the store's thread."""
        commit.run(self._log, self._make_room)
        tell(self._settle, commit)

    def _settle(self, commit: Commit) -> None:
        """A commit has ended: show it to readers, and take back all that was built on failures."""
        self.commits.observe(time.monotonic() - commit.began)
        try:
            self._fault = commit.fault
            if commit.error is not None:
                self._fail(commit, commit.error)
            if commit.is_stored:
                self._litter = ()
                self._forget(commit.past)
                self._damaged.drop(commit.discards)
                self._show(commit.writes)
        finally:  # whatever goes wrong in telling, the next commit must not wait for it
            self._busy = bool(self._staged) or self._damaged.is_staged
            if self._busy:
                self._commit()
            elif self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    def _forget(self, count: int) -> None:
        """Move the window on, and end the watches that have fallen behind it."""
        self._memory.forget(count)
        for watches in self._watches.values() if count else ():
            for watch in tuple(watches):
                watch.forget(self._memory.compacted)

    def _show(self, batch: Sequence[Write]) -> None:
        events: defaultdict[str, list[Event]] = defaultdict(list)
        for write in batch:
            record = write.record
            if self._latest.get(write.address) is write:
                del self._latest[write.address]
            events[record.kind].append(self._memory.apply(record, deleted=write.deleted))
            write.succeed()
        if self._reached is not None:
            self._reached.set_result(None)
            self._reached = None
        for kind, changes in events.items():
            for watch in tuple(self._watches[kind]):
                watch.tell(changes)

    def _fail(self, commit: Commit, error: Exception) -> None:
        """Tell who has to hear it; where the disk is full, objects can end all the same."""
        full = isinstance(error, StorageFull)
        kept, others = parted(self._staged, commit.failed) if full else ([], self._staged)
        self._staged = kept
        stored = commit.writes if commit.is_stored else ()
        self._latest = {each.address: each for each in (*stored, *kept)}
        kind = type(error) if isinstance(error, ApiError) else InternalError
        for write in (*commit.failed, *others):
            write.fail(kind, self._fault)
        for discard in () if commit.is_stored else commit.discards:
            discard.fail(kind, self._fault)

    # ------------------------------------------------------------ maintenance

    def _overdue(self) -> list[Event]:
        return self._memory.overdue(self._retention, self._clock())

    def _expire(self) -> None:
        """Stage the end of objects that have outlived their kind's lifetime."""
        for kind, seconds in self._lifetimes.items():
            limit = self._clock() - seconds
            for record in self.objects(kind):
                if record.written < limit and self.latest(kind, record.key) is record:
                    # nobody waits for it: when the disk is full, the next round tries again
                    self.delete(kind, record.key, record.document()).add_done_callback(
                        asyncio.Future.exception
                    )

    async def tidy(self) -> None:
        """Drop what has outlived its lifetime or left the window."""
        self._expire()
        await self._quiet()
        while not self._busy and self._overdue():
            self._busy = True
            self._commit()
            await self._quiet()
            if self._fault:
                return  # the disk refuses: the next round tries again

    async def run(self, *, interval_seconds: float = 30) -> None:
        """Keep the window small while nobody writes; runs until cancelled.

        The file does not shrink: new rows take the place of those that left the window.
        """
        while True:
            await asyncio.sleep(interval_seconds)
            await self.tidy()

    async def _quiet(self) -> None:
        while self._busy:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Commit what is staged, end every watch, close the file."""
        self._closed = True
        await self._quiet()
        for watches in self._watches.values():
            for watch in tuple(watches):
                watch.end(self.revision)
        if self._executor is not None:
            self._executor.shutdown()
        self._log.close()
