"""Downtimes of guests that migrated away (KubeVirt's migrationstats_collector.go)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.metrics import Family, Histogram, histogram
from corral.node.machine.lifecycle import Machine

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
"""KubeVirt's bounds, in seconds."""


class Downtime(NamedTuple):
    """The seconds for which a migration, by its uid, has stopped the guest of a VMI."""

    migration: str
    seconds: float
    vmi: Key


class Downtimes:
    """The downtimes of migrations away from a node, and the latest one of each VMI."""

    def __init__(self, node: str, machines: Callable[[], Iterable[Machine]]) -> None:
        self._node = node
        self._machines = machines
        self._durations = Histogram(BOUNDS)
        self._latest: dict[str, Downtime] = {}
        """By the uid of the VMI."""

    def observe(self, uid: str) -> None:
        """Record the downtime of a VMI whose machine has just handed its guest over."""
        for machine in self._machines():
            migration = machine.facts.migration
            if machine.record.uid != uid or machine.facts.outcome is not None or migration is None:
                continue  # of another VMI, or of an earlier migration
            if migration.downtime is not None:
                of = Key(machine.record.namespace, machine.record.instance)
                self._latest[uid] = Downtime(migration.uid, migration.downtime, of)
                self._durations.observe(migration.downtime)

    def latest(
        self, find_vmi: Callable[[str], VirtualMachineInstance | None]
    ) -> Iterator[tuple[VirtualMachineInstance | None, Downtime]]:
        """Yield the downtimes of migrations from here that are their VMIs' latest, with the VMIs.

        A joined host does not find a VMI that has left it (None): its downtime is shown as long as
        what is left of its machine.
        """
        for uid, downtime in list(self._latest.items()):
            vmi = find_vmi(uid)
            if downtime.migration == (self._left_by(uid) if vmi is None else _latest_of(vmi)):
                yield vmi, downtime
            else:
                del self._latest[uid]

    def _left_by(self, uid: str) -> str:
        """Return the migration by which a VMI has left, empty if nothing of it is left here."""
        left = (each.facts.migration for each in self._machines() if each.record.uid == uid)
        return next((each.uid for each in left if each is not None), "")

    def family(self) -> Family:
        family = histogram(
            "kubevirt_vmi_migration_downtime_seconds",
            "How long migrations away from the node have stopped their guests.",
        )
        family.add_histogram(self._durations, {"node": self._node})
        return family


def _latest_of(vmi: VirtualMachineInstance) -> str:
    """Return the uid of a VMI's latest migration; empty if there is none."""
    state = vmi.status.migration_state
    return state.migration_uid if state is not None else ""
