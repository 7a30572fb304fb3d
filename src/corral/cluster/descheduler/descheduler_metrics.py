"""Metrics of the descheduler, with its names and labels."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from corral.cluster.descheduler.snapshot import PodInfo
from corral.metrics import Family, Histogram, counter, histogram

BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
LOOP_BOUNDS: Final = (*BOUNDS, 250, 500)
SUCCESS, BACKGROUND, ERROR = "success", "background", "error"
"""Results of evictions; BACKGROUND is that of a VMI that moves."""
_LABELS: Final = ("result", "strategy", "profile", "namespace", "node")


class DeschedulerMetrics:
    """Counts evictions, and measures cycles and plugins."""

    def __init__(self) -> None:
        self.loop = Histogram(LOOP_BOUNDS)
        self.strategies: defaultdict[tuple[str, str], Histogram] = defaultdict(
            lambda: Histogram(BOUNDS)
        )
        """Durations by plugin and profile."""
        self._evicted: Counter[tuple[str, ...]] = Counter()

    def count(self, one: PodInfo, node: str, *, result: str, strategy: str, profile: str) -> None:
        """Count the eviction of a pod from a node."""
        self._evicted[result, strategy, profile, one.key.namespace, node] += 1

    def families(self) -> Iterable[Family]:
        """Return all families; none before the first cycle."""
        evicted = counter(
            "descheduler_pods_evicted_total",
            "Evicted pods, by result, strategy, profile, namespace and node.",
        )
        for values, count in self._evicted.items():
            evicted.add(count, dict(zip(_LABELS, values, strict=True)))
        loop = histogram("descheduler_loop_duration_seconds", "How long cycles took.")
        durations = histogram("descheduler_strategy_duration_seconds", "How long plugins took.")
        if any(self.loop.counts):
            loop.add_histogram(self.loop, {})
        for (strategy, profile), taken in self.strategies.items():
            durations.add_histogram(taken, {"strategy": strategy, "profile": profile})
        return evicted, loop, durations
