"""The committed state in memory: what is, indexed, and the latest changes: the watch window.

The window begins after revision ``compacted``.  It answers a watch from any revision since, and by
undoing changes what the state was at any revision since.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from corral.api.object import Key
from corral.store.record import Event, Record

_OVERHEAD_BYTES = 800
"""What a version costs in memory beside its data: measured, roughly."""


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
        keys = self.keys
        if namespace:
            first = bisect_left(keys, (namespace,))
            keys = keys[first : bisect_left(keys, (namespace + "\0",), first)]
        return [self.records[key] for key in keys]

    def since(self, revision: int) -> list[Event]:
        """The changes after a revision, oldest first."""
        found = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def rewound(self, namespace: str, revision: int) -> list[Record]:
        """What ``within`` answered at an earlier revision."""
        before: dict[Key, Record | None] = {}
        for event in self.since(revision):
            before.setdefault(event.record.key, event.previous)
        if not before:
            return self.within(namespace)
        records = [record for record in self.within(namespace) if record.key not in before]
        records += (
            record
            for record in before.values()
            if record is not None and namespace in ("", record.key.namespace)
        )
        records.sort(key=lambda record: record.key)
        return records


class Memory:
    """All tables, and the window over them."""

    def __init__(self, compacted: int) -> None:
        self.revision = compacted
        self.compacted = compacted
        self.superseded_bytes = 0
        self._tables: dict[str, Table] = {}
        self._window: deque[Event] = deque()

    def table(self, kind: str) -> Table:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = Table()
        return table

    def apply(self, record: Record, *, deleted: bool) -> Event:
        """Take a committed change in."""
        table = self.table(record.kind)
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

    def oldest(self, limit: int) -> Iterable[Event]:
        """The oldest changes of the window, which are the next to be forgotten."""
        for _, event in zip(range(limit), self._window, strict=False):
            yield event

    def __len__(self) -> int:
        return len(self._window)

    def forget(self, count: int) -> None:
        """Move the window's beginning past its oldest ``count`` changes."""
        for _ in range(count):
            event = self._window.popleft()
            self._tables[event.record.kind].events.popleft()
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
        size += len(event.previous.data) + _OVERHEAD_BYTES
    if event.deleted:
        size += len(event.record.data) + _OVERHEAD_BYTES
    return size
