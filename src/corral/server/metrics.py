"""What the server counts, for Prometheus; names are the real API server's where it has one."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from corral.api.kinds.table import KindTable
from corral.server.call import storage
from corral.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """Requests by verb, resource and code, and what the store holds: read when somebody asks."""

    def __init__(self, kinds: KindTable, store: Store) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._kinds = kinds
        self._store = store
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "apiserver_request", "Answers so far.", labels=["verb", "resource", "code"]
        )
        for (verb, resource, code), count in self.requests.items():
            requests.add_metric([verb, resource, str(code)], count)
        yield requests
        objects = GaugeMetricFamily(
            "apiserver_resource_objects", "Objects that are stored.", labels=["group", "resource"]
        )
        for kind in self._kinds:
            if kind.stored_as is None:
                objects.add_metric([kind.group, kind.plural], self._store.count(storage(kind)))
        yield objects
        yield GaugeMetricFamily(
            "corral_store_revision", "The newest revision.", value=self._store.revision
        )
        yield GaugeMetricFamily(
            "corral_store_compacted_revision",
            "The oldest revision that can be watched from.",
            value=self._store.compacted,
        )
        yield GaugeMetricFamily("corral_watches", "Open watches.", value=self._store.watches)
