"""Metrics of a node's checkpoints: how long they take, how long guests stand still, their bytes."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from corral.metrics import Family, Histogram, counter, gauge, histogram
from corral.node.checkpoint_usage import CheckpointUsage

PAUSE_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets of pauses, in seconds."""


class CheckpointMetrics:
    """Counts the checkpoints that a node makes; ``usage`` returns what they occupy."""

    def __init__(self, node: str, usage: Callable[[], CheckpointUsage]) -> None:
        self._node = node
        self._usage = usage
        self._seconds = Histogram()
        self._pauses = Histogram(PAUSE_BOUNDS)
        self._failures: Counter[str] = Counter()

    def completed(self, seconds: float, pause_seconds: float) -> None:
        """Observe a checkpoint that was made."""
        self._seconds.observe(seconds)
        self._pauses.observe(pause_seconds)

    def failed(self, reason: str) -> None:
        """Count a checkpoint that has failed."""
        self._failures[reason] += 1

    def families(self) -> Iterable[Family]:
        """Return the metrics; none before the first checkpoint."""
        usage = self._usage()
        if not usage.number and not self._failures:
            return ()
        labels = {"node": self._node}
        count = gauge("corral_checkpoints", "Checkpoints that VMIs can start from.")
        count.add(usage.number, labels)
        occupied = gauge("corral_checkpoint_bytes", "What the files of checkpoints occupy.")
        occupied.add(usage.disk_bytes, labels)
        shared = gauge("corral_checkpoint_shared_memory_bytes", "Memory that forks share.")
        shared.add(usage.memory_bytes, labels)
        seconds = histogram("corral_checkpoint_seconds", "How long checkpoints took to be made.")
        seconds.add_histogram(self._seconds, labels)
        pauses = histogram(
            "corral_checkpoint_pause_seconds", "How long guests stood still for a checkpoint."
        )
        pauses.add_histogram(self._pauses, labels)
        failures = counter(
            "corral_checkpoint_failures_total", "Checkpoints that have failed, by reason."
        )
        for reason, number in self._failures.items():
            failures.add(number, {**labels, "reason": reason})
        return (count, occupied, shared, seconds, pauses, failures)
