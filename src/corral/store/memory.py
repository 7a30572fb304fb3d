"""The committed state in memory: what is, indexed, and the latest changes: the watch window.

The window begins after revision ``compacted``.  It answers a watch from any revision since, and by
undoing changes what the state was at any revision since.
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

_OVERHEAD_BYTES = 800
"""What a version costs in memory beside its data: measured, roughly."""


_KEY = attrgetter("key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long superseded versions are kept for watches and lists at an older revision.

    Whichever bound is met first counts.  Each commit forgets at most ``step`` changes, so that
    compaction is never felt.
    """

    seconds: int = 300
    changes: int = 100_000
    bytes: int = 48 << 20
    step: int = 1000


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Objects in the order of their keys, and how many; to be taken before anything changes.

    What is not taken costs nothing.
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
    """When one of them changed last."""

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

    def within(self, namespace: str) -> list[Record]:
        """The objects of a namespace, or all of them; a new list."""
        first, last = self._bounds(namespace, None)
        return [self.records[key] for key in self.keys[first:last]]

    def record_range(self, namespace: str, after: Key | None) -> RecordRange:
        """The objects of a namespace, or all of them, that come after a key."""
        first, last = self._bounds(namespace, after)
        keys, records = self.keys, self.records
        return RecordRange((records[keys[place]] for place in range(first, last)), last - first)

    def _bounds(self, namespace: str, after: Key | None) -> tuple[int, int]:
        """Where the keys of a stretch begin and end."""
        keys = self.keys
        first, last = 0, len(keys)
        if namespace:
            first = bisect_left(keys, (namespace,))
            last = bisect_left(keys, (namespace + "\0",), first)
        if after is not None:
            first = min(last, bisect_right(keys, after, first))
        return first, last

    def since(self, revision: int) -> list[Event]:
        """The changes after a revision, oldest first."""
        found = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def rewound(self, namespace: str, after: Key | None, revision: int) -> RecordRange:
        """What ``stretch`` answered at an earlier revision."""
        before: dict[Key, Record | None] = {}
        for event in self.since(revision):
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
    """All tables, and the window over them."""

    def __init__(self, compacted: int) -> None:
        self.revision = compacted
        self.compacted = compacted
        self.superseded_bytes = 0
        self.tables: defaultdict[str, Table] = defaultdict(Table)
        """By kind."""
        self._window: deque[Event] = deque()

    def apply(self, record: Record, *, deleted: bool) -> Event:
        """Take a committed change in."""
        table = self.tables[record.kind]
        previous = table.remove(record.key) if deleted else table.put(record)
        event = Event(record, previous, deleted)
        table.revision = record.revision
        # what was deleted last may be forgotten: then the newest that is left is not the newest
        self.revision = max(self.revision, record.revision)
        if record.revision > self.compacted:
            table.events.append(event)
            self._window.append(event)
            self.superseded_bytes += superseded_bytes(event)
        return event

    def overdue(self, keep: Retention, now: float) -> list[Event]:
        """The changes that the next commit may forget."""
        excess = self.superseded_bytes - keep.bytes
        limit = now - keep.seconds
        past: list[Event] = []
        for event in islice(self._window, keep.step):
            recent = event.record.written > limit
            if recent and excess <= 0 and len(self._window) - len(past) <= keep.changes:
                break
            past.append(event)
            excess -= superseded_bytes(event)
        return past

    def forget(self, count: int) -> None:
        """Move the window's beginning past its oldest ``count`` changes."""
        for _ in range(count):
            event = self._window.popleft()
            self.tables[event.record.kind].events.popleft()
            self.superseded_bytes -= superseded_bytes(event)
            self.compacted = event.revision


def obsolete(event: Event) -> Iterator[int]:
    """The revisions that nobody can ask for once a change has left the window."""
    if event.previous is not None:
        yield event.previous.revision
    if event.deleted:
        yield event.revision


def superseded_bytes(event: Event) -> int:
    """What the window alone keeps alive of a change."""
    size = _OVERHEAD_BYTES // 4
    if event.previous is not None:
        size += event.previous.size + _OVERHEAD_BYTES
    if event.deleted:
        size += event.record.size + _OVERHEAD_BYTES
    return size
