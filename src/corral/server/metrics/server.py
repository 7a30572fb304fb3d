"""What the server tells of itself; names and labels are the real API server's where it has them."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from corral.api.kinds.table import KindTable
from corral.metrics import Family, Histogram, counter, gauge, histogram
from corral.server.flowcontrol.fairness import Fairness
from corral.server.request import route
from corral.server.request.call import Call, storage
from corral.store import Store

VERBS = {"create": "POST", "update": "PUT"}
"""Where the real server tells of a verb by the method of HTTP; others are themselves."""


class Asked(NamedTuple):
    """What requests have in common that are counted together: there are as many as kinds allow."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""

    @classmethod
    def by_method(cls, method: str) -> "Asked":
        """What is known of a request as long as nobody knows who sends it, and for what."""
        return cls(method if method in route.VERBS else "other")

    @classmethod
    def by(cls, call: Call) -> "Asked":
        verb = VERBS.get(call.verb, call.verb.upper())
        of_one = call.name or call.verb == "create"
        scope = "resource" if of_one else "namespace" if call.namespace else "cluster"
        door = call.subresource.partition("/")[0]  # what is behind it (a port) is anybody's choice
        return cls(verb, call.group, call.version.name, call.kind.plural, door, scope)

    def labels(self) -> dict[str, str]:
        return {**self._asdict(), "component": "apiserver"}


class Metrics:
    """Requests and how long they took, and the store: told when somebody asks."""

    def __init__(self, kinds: KindTable, store: Store, turns: Fairness) -> None:
        self._answers: Counter[tuple[Asked, int]] = Counter()
        self._took: dict[Asked, Histogram] = {}
        self._kinds = kinds
        self._store = store
        self._turns = turns

    def answered(self, asked: Asked, code: int, seconds: float) -> None:
        """A request has been answered; a watch only begins then, so its time tells nothing."""
        self._answers[asked, code] += 1
        if asked.verb != "WATCH":
            took = self._took.get(asked)
            if took is None:
                took = self._took[asked] = Histogram()
            took.observe(seconds)

    async def tell(self) -> Iterable[Family]:
        return [*self._requests(), *self._of_turns(), self._objects(), *self._of_store()]

    def _requests(self) -> Iterable[Family]:
        total = counter("apiserver_request_total", "Answers so far.")
        took = histogram("apiserver_request_duration_seconds", "How long answers took.")
        for (asked, code), count in self._answers.items():
            total.add(count, asked.labels() | {"code": str(code)})
        for asked, durations in self._took.items():
            took.add_histogram(durations, asked.labels())
        return total, took

    def _of_turns(self) -> Iterable[Family]:
        turns = self._turns
        yield gauge("corral_requests_waiting", "Requests that wait for their turn.", turns.waiting)
        yield gauge("corral_seats_taken", "Seats of requests that are carried out.", turns.seats)
        refused = counter("corral_requests_refused_total", "Requests sent away: too many.")
        refused.add(turns.refused, {})
        yield refused

    def _objects(self) -> Family:
        objects = gauge("apiserver_resource_objects", "Objects that are stored.")
        for kind in self._kinds:
            if kind.stored_as is None and kind.is_kept:
                labels = {"group": kind.group, "resource": kind.plural}
                objects.add(self._store.count(storage(kind)), labels)
        return objects

    def _of_store(self) -> Iterable[Family]:
        store = self._store
        yield gauge("corral_store_revision", "The newest revision.", store.revision)
        yield gauge(
            "corral_store_compacted_revision",
            "The oldest revision that can be watched from.",
            store.compacted,
        )
        yield gauge(
            "corral_store_fault", "Whether the last commit failed.", bool(store.error_message)
        )
        yield gauge("corral_watches", "Open watches.", store.watches)
        commits = histogram(
            "corral_store_commit_duration_seconds", "How long commits took to be on disk."
        )
        commits.add_histogram(store.commits, {})
        yield commits
