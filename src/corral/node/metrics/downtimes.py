"""Downtimes of guests that migrated away (KubeVirt's migrationstats_collector.go)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.metrics import Family, Histogram, histogram
from corral.node.machine.lifecycle import Machine

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
"""KubeVirt's bounds, in seconds."""


class _Downtime(NamedTuple):
    migration: str
    seconds: float


class Downtimes:
    """The downtimes of migrations away from a node, and the latest one of each VMI."""

    def __init__(self, node: str, machines: Callable[[], Iterable[Machine]]) -> None:
        self._node = node
        self._machines = machines
        self._durations = Histogram(BOUNDS)
        self._latest: dict[str, _Downtime] = {}
        """By the uid of the VMI."""

    def observe(self, uid: str) -> None:
        """Record the downtime of a VMI whose machine has just handed its guest over."""
        for machine in self._machines():
            migration = machine.facts.migration
            if machine.record.uid != uid or machine.facts.outcome is not None or migration is None:
                continue  # of another VMI, or of an earlier migration
            if migration.downtime is not None:
                self._latest[uid] = _Downtime(migration.uid, migration.downtime)
                self._durations.observe(migration.downtime)

    def latest(
        self, find_vmi: Callable[[str], VirtualMachineInstance | None]
    ) -> Iterator[tuple[VirtualMachineInstance, float]]:
        """Yield the VMIs whose latest migration was one from here, with its downtime in seconds."""
        for uid, downtime in list(self._latest.items()):
            vmi = find_vmi(uid)
            state = vmi.status.migration_state if vmi is not None else None
            if vmi is None or state is None or state.migration_uid != downtime.migration:
                del self._latest[uid]
            else:
                yield vmi, downtime.seconds

    def family(self) -> Family:
        family = histogram(
            "kubevirt_vmi_migration_downtime_seconds",
            "How long migrations away from the node have stopped their guests.",
        )
        family.add_histogram(self._durations, {"node": self._node})
        return family
