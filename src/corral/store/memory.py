"""The committed state in memory: indexed objects, and recent changes as the watch window.

The window begins after revision ``compacted``.  It serves watches from any revision since, and
lists at any revision since, by undoing changes.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter

from corral.api.object import Key
from corral.store.object_version import Event, Record
from corral.store.packing import SIZES

_OVERHEAD_BYTES = 800
"""Memory of a version beside its data: measured, roughly."""


_KEY = attrgetter("key")
_NEVER_PACKED = frozenset({"secrets"})
"""Kinds of which no object serves as a sample: it would stay in memory after its deletion."""
_PACKED_SECONDS = 30
"""The age at which versions are packed: most are superseded before."""
_PACKED_BYTES = 512 << 10
"""The bytes that a commit packs, about: 4 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Bounds of the window: superseded versions kept for watches and lists at older revisions.

    The first bound that is reached counts.  Each commit compacts at most ``step`` changes, so that
    no commit takes noticeably longer.
    """

    seconds: int = 300
    changes: int = 100_000
    bytes: int = 48 << 20
    step: int = 1000


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Objects in key order, and their count; iterate before the table changes.

    Lazy: records that are not consumed cost nothing.
    """

    records: Iterator[Record]
    count: int


@dataclass(slots=True)
class Table:
    """The objects of one kind in the order of their keys, and the changes of the window."""

    records: dict[Key, Record] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    events: deque[Event] = field(default_factory=deque)
    revision: int = 0
    """The revision of the last change of any of them."""
    sample: bytes = b""
    """The object that others are compressed against: the first that was."""

    def put(self, record: Record) -> Record | None:
        previous = self.records.get(record.key)
        if previous is None:
            insort(self.keys, record.key)
        self.records[record.key] = record
        return previous

    def remove(self, key: Key) -> Record | None:
        previous = self.records.pop(key, None)
        if previous is not None:
            del self.keys[bisect_left(self.keys, key)]
        return previous

    def pack(self, key: Key, limit: float) -> int:
        """Compress an object last written before a time; return the bytes that took work."""
        record = self.records.get(key)
        if record is None or record.written > limit or record.size not in SIZES:
            return 0
        self.sample = self.sample or record.rest
        record.pack(self.sample)
        return record.size

    def within(self, namespace: str) -> list[Record]:
        """Return the objects of a namespace, or all of them, as a new list."""
        first, last = self._bounds(namespace, None)
        return [self.records[key] for key in self.keys[first:last]]

    def record_range(self, namespace: str, after: Key | None) -> RecordRange:
        """Return the objects of a namespace, or all of them, that come after a key."""
        first, last = self._bounds(namespace, after)
        keys, records = self.keys, self.records
        return RecordRange((records[keys[place]] for place in range(first, last)), last - first)

    def _bounds(self, namespace: str, after: Key | None) -> tuple[int, int]:
        """Return the start and end index of a range of keys."""
        keys = self.keys
        first, last = 0, len(keys)
        if namespace:
            first = bisect_left(keys, (namespace,))
            last = bisect_left(keys, (namespace + "\0",), first)
        if after is not None:
            first = min(last, bisect_right(keys, after, first))
        return first, last

    def changes_since(self, revision: int) -> list[Event]:
        """Return the changes after a revision, oldest first."""
        events = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            events.append(event)
        events.reverse()
        return events

    def record_range_at(self, namespace: str, after: Key | None, revision: int) -> RecordRange:
        """Return what ``record_range`` returned at an earlier revision."""
        before: dict[Key, Record | None] = {}
        for event in self.changes_since(revision):
            before.setdefault(event.record.key, event.previous)
        present = self.record_range(namespace, after)
        changed = {
            key: record
            for key, record in before.items()
            if namespace in ("", key.namespace) and (after is None or key > after)
        }
        if not changed:
            return present
        earlier = sorted(filter(None, changed.values()), key=_KEY)
        same = (record for record in present.records if record.key not in changed)
        count = present.count - len(changed.keys() & self.records.keys()) + len(earlier)
        return RecordRange(merge(same, earlier, key=_KEY), count)


class Memory:
    """All tables, and the window of their recent changes."""

    def __init__(self, compacted: int) -> None:
        self.revision = compacted
        self.compacted = compacted
        self.superseded_bytes = 0
        self.tables: defaultdict[str, Table] = defaultdict(Table)
        """By kind."""
        self._window: deque[Event] = deque()
        self._unpacked: deque[tuple[int, str, Key]] = deque()
        """Writes of objects that were not packed since: seconds since 1970, kind and key.
        The versions are not held, which the window may drop."""

    def apply(self, record: Record, *, deleted: bool) -> Event:
        """Apply a committed change."""
        table = self.tables[record.kind]
        previous = table.remove(record.key) if deleted else table.put(record)
        event = Event(record, previous, deleted)
        table.revision = record.revision
        # On load, the last deletion may have been compacted: the newest row left is older.
        self.revision = max(self.revision, record.revision)
        if record.revision > self.compacted:
            table.events.append(event)
            self._window.append(event)
            self.superseded_bytes += superseded_bytes(event)
        if not deleted:
            self._unpacked.append((record.written, record.kind, record.key))
        return event

    def overdue(self, retention: Retention, now: float) -> list[Event]:
        """Return the changes that the next commit compacts."""
        excess_bytes = self.superseded_bytes - retention.bytes
        limit = now - retention.seconds
        overdue_events: list[Event] = []
        for event in islice(self._window, retention.step):
            recent = event.record.written > limit
            if (
                recent
                and excess_bytes <= 0
                and len(self._window) - len(overdue_events) <= retention.changes
            ):
                break
            overdue_events.append(event)
            excess_bytes -= superseded_bytes(event)
        return overdue_events

    def forget(self, count: int) -> None:
        """Remove the oldest ``count`` changes from the window."""
        for _ in range(count):
            event = self._window.popleft()
            self.tables[event.record.kind].events.popleft()
            self.superseded_bytes -= superseded_bytes(event)
            self.compacted = event.revision

    def pack(self, now: float) -> None:
        """Compress some of the objects that have not changed for a while."""
        size, limit = 0, now - _PACKED_SECONDS
        while self._unpacked and self._unpacked[0][0] <= limit and size < _PACKED_BYTES:
            _, kind, key = self._unpacked.popleft()
            if kind not in _NEVER_PACKED:
                size += self.tables[kind].pack(key, limit)


def obsolete(event: Event) -> Iterator[int]:
    """Yield the revisions that no request can reach once a change has left the window."""
    if event.previous is not None:
        yield event.previous.revision
    if event.deleted:
        yield event.revision


def superseded_bytes(event: Event) -> int:
    """Return the bytes that only the window keeps alive of a change."""
    size = _OVERHEAD_BYTES // 4
    if event.previous is not None:
        size += event.previous.size + _OVERHEAD_BYTES
    if event.deleted:
        size += event.record.size + _OVERHEAD_BYTES
    return size
