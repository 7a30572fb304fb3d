"""Tells people what happened to an object: Event objects, few of them.

Events never hold up what they tell of: they go into a bounded queue that one task empties, and
are dropped when it is full.  What repeats is counted rather than written again, what is alike is
combined, and an object about which too much is told falls silent (client-go's EventCorrelator).
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
from corral.reconcile.batch import AT_ONCE, each
from corral.reconcile.objects import reference

log = structlog.get_logger()

Clock = Callable[[], datetime]
V = TypeVar("V")

_EVENT = kind_of(Event)
_QUEUED = 4096
_REMEMBERED = 4096
_LONGEST_MESSAGE = 1024
_WRITE_SECONDS = 30.0

BURST = 25
REFILL_SECONDS = 300.0
"""Events about one object from one component: so many at once, then one in so many seconds."""
SIMILAR = 10
SIMILAR_SECONDS = 600.0
"""From so many different messages for one reason within this time, they are told as one event."""
COMBINED = "(combined from similar events): "


class Said(NamedTuple):
    """What makes two events the same event."""

    component: str
    host: str
    about: tuple[str, ...]
    """The involved object: apiVersion, kind, namespace, name, uid."""
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Telling:
    """How an event is written: anew, or as one more occurrence of the Event object ``name``."""

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


_Told = tuple[Said, Document, datetime]
"""An event, the object that it is about, and when it was told."""


class _Outcome(NamedTuple):
    """How an event is to be written now that it was told, perhaps several times."""

    said: Said
    involved: Document
    telling: Telling
    begun: datetime
    moment: datetime


class _Recent(Generic[V]):
    """Remembers something of each event, and forgets what was not asked for the longest."""

    def __init__(self) -> None:
        self._values: OrderedDict[Said, V] = OrderedDict()

    def get(self, key: Said) -> V | None:
        return self._values.get(key)

    def put(self, key: Said, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > _REMEMBERED:
            self._values.popitem(last=False)


class Correlator:
    """Decides how, and whether, each event is told.  Pure but for what it remembers."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._told: _Recent[Telling] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()

    def telling(self, said: Said, now: datetime) -> Telling | None:
        """How this event is to be written now; None when too much is told of its object."""
        key, message = self._combine(said, now)
        told = self._told.get(key)
        if told is None:
            told = Telling("", message, 1, now)
        else:
            told.count += 1
            told.message = message
        self._told.put(key, told)
        return told if self._allowed(said, now) else None

    def forget(self, telling: Telling) -> None:
        """The Event object is no longer there: count from one again."""
        telling.name, telling.count = "", 1

    def _combine(self, said: Said, now: datetime) -> tuple[Said, str]:
        alike = said._replace(message="")
        similar = self._similar.get(alike)
        if similar is None or (now - similar.last).total_seconds() > SIMILAR_SECONDS:
            similar = _Similar(set(), now)
        similar.messages.add(said.message)
        similar.last = now
        self._similar.put(alike, similar)
        if len(similar.messages) < SIMILAR:
            return said, said.message
        similar.messages.pop()
        return alike, COMBINED + said.message

    def _allowed(self, said: Said, now: datetime) -> bool:
        source = said._replace(type="", reason="", message="")
        bucket = self._buckets.get(source) or _Bucket(BURST, now)
        # A wall clock that was set back takes no tokens away.
        passed = max(0.0, (now - bucket.filled).total_seconds())
        bucket.tokens = min(BURST, bucket.tokens + passed / REFILL_SECONDS)
        bucket.filled = now
        self._buckets.put(source, bucket)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class Recorder:
    """Tells events in the name of one component (and host, for those that run on every node)."""

    events: "Events"
    component: str
    host: str = ""

    def event(
        self, about: msgspec.Struct | Document, event_type: str, reason: str, message: str
    ) -> None:
        """Say something of an object (a view, or an ObjectReference); returns at once.

        ``event_type`` is Normal or Warning.
        """
        involved = about if isinstance(about, dict) else reference(about)
        named = tuple(
            str(involved.get(field, ""))
            for field in ("apiVersion", "kind", "namespace", "name", "uid")
        )
        text = message[:_LONGEST_MESSAGE]
        self.events.tell(Said(self.component, self.host, named, event_type, reason, text), involved)


class Events:
    """The queue of events of a process, and the task that writes them."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._correlator = Correlator()
        self._queue: asyncio.Queue[_Told] = asyncio.Queue(_QUEUED)
        self._last_stamp = 0

    def recorder(self, component: str, host: str = "") -> Recorder:
        return Recorder(self, component, host)

    def tell(self, said: Said, involved: Document) -> None:
        """Queue an event about the object that ``involved`` refers to."""
        try:
            self._queue.put_nowait((said, involved, self._clock()))
        except asyncio.QueueFull:
            log.debug("event dropped", reason=said.reason, about=involved.get("name"))

    async def run(self) -> None:
        """Write what is told until cancelled: what waits together is written together.

        A commit to the disk is shared then, and what was told several times is written once.
        """
        while True:
            waiting = [await self._queue.get()]
            while len(waiting) < AT_ONCE and not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            try:
                async with asyncio.timeout(_WRITE_SECONDS):  # one for all: they begin at once
                    await each(self._outcomes(waiting), self._write_one)
            except TimeoutError:
                log.debug("events not written: the server does not answer", count=len(waiting))

    def _outcomes(self, waiting: Iterable[_Told]) -> Sequence[_Outcome]:
        """What is to be written of what was told: of each event its last state, in their order."""
        outcomes: dict[int, _Outcome] = {}
        for said, involved, moment in waiting:
            telling = self._correlator.telling(said, moment)
            if telling is None:
                continue
            known = outcomes.get(id(telling))
            begun = moment if known is None else known.begun
            outcomes[id(telling)] = _Outcome(said, involved, telling, begun, moment)
        return tuple(outcomes.values())

    async def _write_one(self, outcome: _Outcome) -> None:
        try:
            await self._write(outcome)
        except (ApiError, TimeoutError) as error:
            # Telling is best effort: what is told of is durable elsewhere.
            log.debug("event not written", reason=outcome.said.reason, error=str(error))

    async def _write(self, outcome: _Outcome) -> None:
        said, involved, telling, begun, moment = outcome
        namespace = involved.get("namespace") or "default"
        message = telling.message[:_LONGEST_MESSAGE]
        if telling.name:
            change = {"count": telling.count, "lastTimestamp": rfc3339(moment), "message": message}
            try:
                await self._client.patch(Event, Key(namespace, telling.name), change)
            except NotFound:
                self._correlator.forget(telling)
            else:
                return
        name = f"{involved.get('name', '')}.{self._stamp(moment):x}"
        document = {
            "apiVersion": _EVENT.api_version,
            "kind": _EVENT.name,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved,
            "type": said.type,
            "reason": said.reason,
            "message": message,
            "source": {"component": said.component, **({"host": said.host} if said.host else {})},
            "reportingComponent": said.component,
            "reportingInstance": said.host,
            "firstTimestamp": rfc3339(begun),
            "lastTimestamp": rfc3339(moment),
            "count": telling.count,
        }
        # Nobody reads the answer: it is the Event that was sent.
        await self._client.ask("POST", path_of(_EVENT, Key(namespace, "")), document=document)
        telling.name = name

    def _stamp(self, moment: datetime) -> int:
        """Nanoseconds that name an event, as client-go's do; never the same twice."""
        self._last_stamp = max(self._last_stamp + 1, int(moment.timestamp() * 1e9))
        return self._last_stamp
