"""Event recorders, and the broadcaster that writes their Events.

Recording never blocks: events go into a bounded queue that one task empties, and are dropped when
it is full.  Repeated events are counted rather than created again, similar ones aggregated, and
objects with too many events rate-limited (client-go's EventCorrelator).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec
import structlog
from lightkube.models.core_v1 import Event

from corral.api.errors import ApiError, NotFound
from corral.api.kinds import kind_of
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.client.client import Client, path_of
from corral.reconcile.batch import MAX_IN_FLIGHT, for_each
from corral.reconcile.objects import object_reference

log = structlog.get_logger()

Clock = Callable[[], datetime]
V = TypeVar("V")

_EVENT = kind_of(Event)
MAX_QUEUED = 4096
MAX_CACHED = 4096
MAX_MESSAGE_CHARACTERS = 1024
_WRITE_SECONDS = 30.0

BURST = 25
REFILL_SECONDS = 300.0
"""Events about one object from one component: so many at once, then one in so many seconds
(client-go's EventSourceObjectSpamFilter)."""
SIMILAR = 10
SIMILAR_SECONDS = 600.0
"""Events with so many different messages for one reason within this time become one event."""
COMBINED = "(combined from similar events): "


class EventKey(NamedTuple):
    """The fields that are equal in events that are counted as one."""

    component: str
    host: str
    involved: tuple[str, ...]
    """apiVersion, kind, namespace, name and uid of the involved object."""
    type: str
    reason: str
    message: str
    action: str = ""


@dataclass(slots=True)
class EventRecord:
    """An Event object as it was written last; ``name`` is empty before its creation."""

    name: str
    message: str
    count: int
    first: datetime


@dataclass(slots=True)
class _Similar:
    messages: set[str]
    last: datetime


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: datetime


_Recorded = tuple[EventKey, Document, datetime]
"""An event, the reference to its object, and when it was recorded."""


class _PendingWrite(NamedTuple):
    """One Event to create or patch, for one or several recorded occurrences."""

    key: EventKey
    reference: Document
    record: EventRecord
    first: datetime
    last: datetime


class _LruCache(Generic[V]):
    """Values by event; drops the one that was put longest ago when full."""

    def __init__(self) -> None:
        self._values: OrderedDict[EventKey, V] = OrderedDict()

    def get(self, key: EventKey) -> V | None:
        return self._values.get(key)

    def put(self, key: EventKey, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > MAX_CACHED:
            self._values.popitem(last=False)


class EventCorrelator:
    """Aggregates and rate-limits events, as client-go's EventCorrelator does.  No I/O."""

    def __init__(self) -> None:
        self._similar: _LruCache[_Similar] = _LruCache()
        self._records: _LruCache[EventRecord] = _LruCache()
        self._buckets: _LruCache[_Bucket] = _LruCache()

    def record(self, key: EventKey, now: datetime) -> EventRecord | None:
        """Return the record to write for an event; None if its object is over the rate limit."""
        aggregated, message = self._aggregate(key, now)
        record = self._records.get(aggregated)
        if record is None:
            record = EventRecord("", message, 1, now)
        else:
            record.count += 1
            record.message = message
        self._records.put(aggregated, record)
        return record if self._allowed(key, now) else None

    def forget(self, record: EventRecord) -> None:
        """Reset the record of an Event object that was deleted: count from one again."""
        record.name, record.count = "", 1

    def _aggregate(self, key: EventKey, now: datetime) -> tuple[EventKey, str]:
        aggregate_key = key._replace(message="")
        similar = self._similar.get(aggregate_key)
        if similar is None or (now - similar.last).total_seconds() > SIMILAR_SECONDS:
            similar = _Similar(set(), now)
        similar.messages.add(key.message)
        similar.last = now
        self._similar.put(aggregate_key, similar)
        if len(similar.messages) < SIMILAR:
            return key, key.message
        similar.messages.pop()
        return aggregate_key, COMBINED + key.message

    def _allowed(self, key: EventKey, now: datetime) -> bool:
        source = key._replace(type="", reason="", message="", action="")
        bucket = self._buckets.get(source) or _Bucket(BURST, now)
        # A wall clock that was set back must not remove tokens.
        passed = max(0.0, (now - bucket.filled).total_seconds())
        bucket.tokens = min(BURST, bucket.tokens + passed / REFILL_SECONDS)
        bucket.filled = now
        self._buckets.put(source, bucket)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class EventRecorder:
    """Records events of one component (with its host, for those that run on every node)."""

    events: "EventBroadcaster"
    component: str
    host: str = ""

    def event(
        self,
        involved: msgspec.Struct | Document,
        event_type: str,
        reason: str,
        message: str,
        *,
        action: str = "",
    ) -> None:
        """Record an event about an object (a view, or an ObjectReference).  Never blocks.

        ``event_type`` is Normal or Warning; ``action`` is what was done to the object.
        """
        reference = involved if isinstance(involved, dict) else object_reference(involved)
        identity = tuple(
            str(reference.get(field, ""))
            for field in ("apiVersion", "kind", "namespace", "name", "uid")
        )
        text = message[:MAX_MESSAGE_CHARACTERS]
        self.events.record(
            EventKey(self.component, self.host, identity, event_type, reason, text, action),
            reference,
        )


class EventBroadcaster:
    """The event queue of a process, and the task that writes from it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._correlator = EventCorrelator()
        self._queue: asyncio.Queue[_Recorded] = asyncio.Queue(MAX_QUEUED)
        self._last_stamp = 0

    def recorder(self, component: str, host: str = "") -> EventRecorder:
        return EventRecorder(self, component, host)

    def record(self, key: EventKey, reference: Document) -> None:
        """Queue an event about the object that ``reference`` refers to; drop it if full."""
        try:
            self._queue.put_nowait((key, reference, self._clock()))
        except asyncio.QueueFull:
            log.debug("event dropped", reason=key.reason, involved=reference.get("name"))

    async def run(self) -> None:
        """Write recorded events until cancelled, in batches.

        A batch shares a commit of the store, and an event that occurs in it several times is
        written once.
        """
        while True:
            batch = [await self._queue.get()]
            while len(batch) < MAX_IN_FLIGHT and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                async with asyncio.timeout(_WRITE_SECONDS):  # one for all: they begin at once
                    await for_each(self._writes(batch), self._write_one)
            except TimeoutError:
                log.debug("events not written: the server does not answer", count=len(batch))

    def _writes(self, batch: Iterable[_Recorded]) -> Sequence[_PendingWrite]:
        """Return one write per event with its latest state, in order of first occurrence."""
        writes: dict[int, _PendingWrite] = {}
        for key, reference, last in batch:
            record = self._correlator.record(key, last)
            if record is None:
                continue
            earlier = writes.get(id(record))
            first = last if earlier is None else earlier.first
            writes[id(record)] = _PendingWrite(key, reference, record, first, last)
        return tuple(writes.values())

    async def _write_one(self, write: _PendingWrite) -> None:
        try:
            await self._write(write)
        except (ApiError, TimeoutError) as error:
            # Events are best effort: the state that they report is durable elsewhere.
            log.debug("event not written", reason=write.key.reason, error=str(error))

    async def _write(self, write: _PendingWrite) -> None:
        key, reference, record, first, last = write
        namespace = reference.get("namespace") or "default"
        message = record.message[:MAX_MESSAGE_CHARACTERS]
        if record.name:
            change = {"count": record.count, "lastTimestamp": rfc3339(last), "message": message}
            try:
                await self._client.patch(Event, Key(namespace, record.name), change)
            except NotFound:
                self._correlator.forget(record)
            else:
                return
        name = f"{reference.get('name', '')}.{self._stamp(last):x}"
        document = {
            "apiVersion": _EVENT.api_version,
            "kind": _EVENT.name,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": key.type,
            "reason": key.reason,
            "message": message,
            **({"action": key.action} if key.action else {}),
            "source": {"component": key.component, **({"host": key.host} if key.host else {})},
            "reportingComponent": key.component,
            "reportingInstance": key.host,
            "firstTimestamp": rfc3339(first),
            "lastTimestamp": rfc3339(last),
            "count": record.count,
        }
        # A plain request, because the response need not be decoded: it is the Event that was sent.
        await self._client.request("POST", path_of(_EVENT, Key(namespace, "")), document=document)
        record.name = name

    def _stamp(self, moment: datetime) -> int:
        """Return nanoseconds for an event's name, as client-go does; never the same twice."""
        self._last_stamp = max(self._last_stamp + 1, int(moment.timestamp() * 1e9))
        return self._last_stamp
