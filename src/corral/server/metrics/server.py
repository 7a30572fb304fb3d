"""The server's own metrics, with kube-apiserver's names and labels where it has them."""

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
"""Verbs that kube-apiserver reports by their HTTP method; others keep their name."""


class RequestLabels(NamedTuple):
    """The labels of a request; their number is bounded by the number of kinds."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""

    @classmethod
    def by_method(cls, method: str) -> "RequestLabels":
        """Return the labels of a request that is not authenticated or not routed yet."""
        return cls(method if method in route.VERBS else "other")

    @classmethod
    def by(cls, call: Call) -> "RequestLabels":
        verb = VERBS.get(call.verb, call.verb.upper())
        is_single = call.name or call.verb == "create"
        scope = "resource" if is_single else "namespace" if call.namespace else "cluster"
        subresource = call.subresource.partition("/")[0]  # clients choose the rest: a port
        return cls(verb, call.group, call.version.name, call.kind.plural, subresource, scope)

    def labels(self) -> dict[str, str]:
        return {**self._asdict(), "component": "apiserver"}


class Metrics:
    """Counters and durations of requests; gauges of fairness and the store, read at scrape."""

    def __init__(self, kinds: KindTable, store: Store, fairness: Fairness) -> None:
        self._responses: Counter[tuple[RequestLabels, int]] = Counter()
        self._durations: dict[RequestLabels, Histogram] = {}
        self._kinds = kinds
        self._store = store
        self._fairness = fairness

    def record_response(self, request_labels: RequestLabels, code: int, seconds: float) -> None:
        """Count a response; durations of watches, which only begin then, are left out."""
        self._responses[request_labels, code] += 1
        if request_labels.verb != "WATCH":
            histogram_of_labels = self._durations.get(request_labels)
            if histogram_of_labels is None:
                histogram_of_labels = self._durations[request_labels] = Histogram()
            histogram_of_labels.observe(seconds)

    async def families(self) -> Iterable[Family]:
        return [
            *self._requests(),
            *self._fairness_families(),
            self._objects(),
            *self._store_families(),
        ]

    def _requests(self) -> Iterable[Family]:
        total = counter("apiserver_request_total", "Requests by response code.")
        histogram_of_labels = histogram(
            "apiserver_request_duration_seconds", "Durations of requests."
        )
        for (request_labels, code), count in self._responses.items():
            total.add(count, request_labels.labels() | {"code": str(code)})
        for request_labels, durations in self._durations.items():
            histogram_of_labels.add_histogram(durations, request_labels.labels())
        return total, histogram_of_labels

    def _fairness_families(self) -> Iterable[Family]:
        fairness = self._fairness
        yield gauge("corral_requests_waiting", "Requests that wait for seats.", fairness.waiting)
        yield gauge("corral_seats_taken", "Seats of requests in progress.", fairness.seats)
        refused = counter("corral_requests_refused_total", "Requests rejected: too many.")
        refused.add(fairness.rejected, {})
        yield refused

    def _objects(self) -> Family:
        objects = gauge("apiserver_resource_objects", "Objects that are stored.")
        for kind in self._kinds:
            if kind.stored_as is None and kind.is_kept:
                labels = {"group": kind.group, "resource": kind.plural}
                objects.add(self._store.count(storage(kind)), labels)
        return objects

    def _store_families(self) -> Iterable[Family]:
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
