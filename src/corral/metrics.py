"""Prometheus metrics: metric families, and the registry of their sources.

Values are computed at a scrape: components register a ``Source``, which returns its families anew
each time, so that the values of removed objects disappear.  Only events are counted when they
happen.  The only module that uses prometheus_client.
"""

import asyncio
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

SOURCE_SECONDS: Final = 5.0
"""Time limit of a source; the default scrape timeout of Prometheus is 10 s."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds for durations of mostly milliseconds, up to minutes."""
START_STAGES: Final = (
    "corral_vmi_start_stage_seconds",
    "Time of each stage of a start: scheduled, prepared, spawned, started, booted and ready.",
)
"""Name and description of the family of both controllers and nodes."""
START_BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)

log = structlog.get_logger()


class Family(Metric):
    """A metric family: all values of one name, with their labels."""

    def add(self, value: float, labels: Mapping[str, str] | None = None) -> None:
        suffix = "_total" if self.type == "counter" else ""
        self.add_sample(self.name + suffix, dict(labels or {}), value)

    def add_histogram(self, histogram: "Histogram", labels: Mapping[str, str]) -> None:
        cumulative = 0
        for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
            cumulative += count
            below = {**labels, "le": "+Inf" if bound == math.inf else str(float(bound))}
            self.add_sample(f"{self.name}_bucket", below, cumulative)
        self.add_sample(f"{self.name}_count", dict(labels), cumulative)
        self.add_sample(f"{self.name}_sum", dict(labels), histogram.sum)


def counter(name: str, help_text: str) -> Family:
    """Return a family of counters; its name ends in ``_total``."""
    assert name.endswith("_total"), name
    return Family(name.removesuffix("_total"), help_text, "counter")


def gauge(name: str, help_text: str, value: float | None = None) -> Family:
    """Return a family of gauges; ``value`` is the only one, without labels."""
    family = Family(name, help_text, "gauge")
    if value is not None:
        family.add(value)
    return family


def histogram(name: str, help_text: str) -> Family:
    """Return a family of histograms."""
    return Family(name, help_text, "histogram")


class Histogram:
    """A histogram of durations in seconds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Stages:
    """Durations of stages of many objects, each measured from the end of the one before.

    Callers ``forget`` objects that ended or reached their last stage.
    """

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._help = help_text
        self._bounds = bounds
        self._since: dict[str, float] = {}
        self._durations: dict[str, Histogram] = {}

    def begin(self, uid: str) -> None:
        """Record the begin of the first stage."""
        self._since[uid] = asyncio.get_running_loop().time()

    def end(self, stage: str, uid: str) -> None:
        """Record the end of a stage and the begin of the next; no effect without ``begin``."""
        if (since := self._since.get(uid)) is None:
            return
        self.begin(uid)
        durations = self._durations.setdefault(stage, Histogram(self._bounds))
        durations.observe(self._since[uid] - since)

    def forget(self, uid: str) -> None:
        self._since.pop(uid, None)

    def family(self) -> Family:
        family = histogram(self._name, self._help)
        for stage, durations in self._durations.items():
            family.add_histogram(durations, {"stage": stage})
        return family


Source = Callable[[], Awaitable[Iterable[Family]]]
"""Returns the current values."""


class Registry:
    """The sources of a process."""

    def __init__(self, **sources: Source) -> None:
        self._sources = list(sources.items())
        self._failures: Counter[str] = Counter()

    def add(self, name: str, source: Source) -> None:
        """Add a source; its name is a label of the counter of failures."""
        self._sources.append((name, source))

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all families in a format that the client accepts, and its media type.

        Sources that fail or time out are left out.
        """
        # It imports an HTTP server, which takes part of a start; the first scrape comes later.
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

        results = await asyncio.gather(*(self._collect(*each) for each in self._sources))
        families: dict[str, Family] = {}
        for family in (each for result in results for each in result):
            merged = families.setdefault(family.name, family)
            if merged is not family:
                merged.samples += family.samples
        failures = counter("corral_scrape_failures_total", "Sources that failed or were late.")
        for name, _ in self._sources:
            failures.add(self._failures[name], {"source": name})
        encode, media_type = choose_encoder(accept)
        collector = _Collector([*families.values(), failures])
        # In a thread, because the lines of a thousand machines take most of a second.
        return await asyncio.to_thread(encode, collector), media_type

    async def _collect(self, name: str, source: Source) -> list[Family]:
        try:
            async with asyncio.timeout(SOURCE_SECONDS):
                return list(await source())
        except TimeoutError:
            log.warning("metrics are late", source=name, seconds=SOURCE_SECONDS)
        except Exception:
            # One failing source must not hide the others.
            log.exception("metrics failed", source=name)
        self._failures[name] += 1
        return []


class _Collector:
    """A registry of given families, for the encoders of prometheus_client."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def process() -> Iterable[Family]:
    """Return the metrics of this process: CPU time, memory, open files, start time."""
    families = []
    for metric in ProcessCollector(registry=None).collect():
        family = Family(metric.name, metric.documentation, metric.type)
        family.samples = metric.samples
        families.append(family)
    return families
