"""What is told to Prometheus: families of values, and the registry that asks for them.

Nothing is worked out before somebody asks: whoever has something to tell registers a ``Source``,
which makes its families anew each time, so a value goes when what it is of goes.  Only what nobody
could tell afterwards is counted when it happens, in plain numbers.  The one door to
prometheus_client.
"""

import asyncio
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

SOURCE_SECONDS: Final = 5.0
"""So long a source may take: Prometheus by itself gives up on all of them after 10 s."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds for what mostly takes milliseconds, but may take minutes."""
START_STAGES: Final = (
    "corral_vmi_start_stage_seconds",
    "Time of each stage of a start: scheduled, prepared, spawned, started, booted and ready.",
)
"""Name and description of what the loops and the nodes tell of the same starts."""
START_BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)

log = structlog.get_logger()


class Family(Metric):
    """All values of one name, with their labels."""

    def add(self, value: float, labels: Mapping[str, str] | None = None) -> None:
        suffix = "_total" if self.type == "counter" else ""
        self.add_sample(self.name + suffix, dict(labels or {}), value)

    def add_histogram(self, histogram: "Histogram", labels: Mapping[str, str]) -> None:
        so_far = 0
        for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
            so_far += count
            below = {**labels, "le": "+Inf" if bound == math.inf else str(float(bound))}
            self.add_sample(f"{self.name}_bucket", below, so_far)
        self.add_sample(f"{self.name}_count", dict(labels), so_far)
        self.add_sample(f"{self.name}_sum", dict(labels), histogram.sum)


def counter(name: str, help_text: str) -> Family:
    """A family of what only grows; its name ends in ``_total``."""
    assert name.endswith("_total"), name
    return Family(name.removesuffix("_total"), help_text, "counter")


def gauge(name: str, help_text: str, value: float | None = None) -> Family:
    """A family of what goes up and down; ``value`` is its only one, where it has no labels."""
    family = Family(name, help_text, "gauge")
    if value is not None:
        family.add(value)
    return family


def histogram(name: str, help_text: str) -> Family:
    """A family of histograms."""
    return Family(name, help_text, "histogram")


class Histogram:
    """How long things took: how many of them up to each bound, and the sum.  Seconds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Stages:
    """How long each stage of many things takes, from the end of the one before it.

    What has ended or has reached its last stage is to be forgotten.
    """

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._help = help_text
        self._bounds = bounds
        self._since: dict[str, float] = {}
        self._took: dict[str, Histogram] = {}

    def begin(self, uid: str) -> None:
        """A stage begins; nothing ends with it."""
        self._since[uid] = asyncio.get_running_loop().time()

    def end(self, stage: str, uid: str) -> None:
        """A stage ends, and the next one begins; without effect on what was never begun."""
        if (since := self._since.get(uid)) is None:
            return
        self.begin(uid)
        took = self._took.setdefault(stage, Histogram(self._bounds))
        took.observe(self._since[uid] - since)

    def forget(self, uid: str) -> None:
        self._since.pop(uid, None)

    def family(self) -> Family:
        family = histogram(self._name, self._help)
        for stage, took in self._took.items():
            family.add_histogram(took, {"stage": stage})
        return family


Source = Callable[[], Awaitable[Iterable[Family]]]
"""Tells what there is to tell at this moment."""


class Registry:
    """The sources of a process."""

    def __init__(self, **sources: Source) -> None:
        self._sources = list(sources.items())
        self._failures: Counter[str] = Counter()

    def add(self, name: str, source: Source) -> None:
        """Ask a source, too; its name tells people which one failed."""
        self._sources.append((name, source))

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """Everything in the form that the client accepts, and that form's media type.

        A source that fails or is late is left out: all the others are told nevertheless.
        """
        asked = await asyncio.gather(*(self._ask(*each) for each in self._sources))
        families: dict[str, Family] = {}
        for family in (each for answer in asked for each in answer):
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples += family.samples
        failures = counter("corral_scrape_failures_total", "Sources that failed or were late.")
        for name, _ in self._sources:
            failures.add(self._failures[name], {"source": name})
        encode, media_type = choose_encoder(accept)
        told = _Told([*families.values(), failures])
        # The lines of a thousand machines take most of a second, in which others have their turn.
        return await asyncio.to_thread(encode, told), media_type

    async def _ask(self, name: str, source: Source) -> list[Family]:
        try:
            async with asyncio.timeout(SOURCE_SECONDS):
                return list(await source())
        except TimeoutError:
            log.warning("metrics are late", source=name, seconds=SOURCE_SECONDS)
        except Exception:
            # The one door: what one source cannot tell must not hide what the others can.
            log.exception("metrics failed", source=name)
        self._failures[name] += 1
        return []


class _Told:
    """What sources told, as the encoders of prometheus_client want to read it."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def process() -> Iterable[Family]:
    """The source of this process's own figures: processor time, memory, open files, its start."""
    families = []
    for metric in ProcessCollector(registry=None).collect():
        family = Family(metric.name, metric.documentation, metric.type)
        family.samples = metric.samples
        families.append(family)
    return families
