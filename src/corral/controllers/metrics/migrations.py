"""Metrics of live migrations (KubeVirt's migrationstats_collector.go and migration_metrics.go).

The times of phases are recorded as events arrive, the rest is computed from objects at a scrape.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from corral.api.kinds.kubevirt.migration import (
    FAILED,
    PENDING,
    SCHEDULING,
    SUCCEEDED,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import parse_rfc3339
from corral.controllers.metrics.transitions import observe
from corral.metrics import Family, Histogram, Source, gauge, histogram
from corral.reconcile.context import ControllerContext

Migration = VirtualMachineInstanceMigration

_COUNTED: Final = ("pending", "scheduling", "unset", "running")
_RESULTS: Final = {SUCCEEDED: "succeeded", FAILED: "failed"}


def source(context: ControllerContext) -> Source:
    """Return the source of metrics of the cached migrations, and of their phases from now on."""
    return MigrationMetrics(context).collect


class MigrationMetrics:
    """Follows migrations from phase to phase."""

    def __init__(self, context: ControllerContext) -> None:
        self._migrations = context.informers.of(Migration)
        self._vmis = context.informers.of(VirtualMachineInstance)
        self._from_creation: dict[str, Histogram] = {}
        self._migrations.handle(self._changed)

    def _changed(self, old: Migration | None, new: Migration | None) -> None:
        """Observe the phases that a migration enters; one write may pass several of them."""
        if old is None or new is None:
            return
        created = new.metadata.creation_timestamp
        known = len(old.status.phase_transition_timestamps)
        for each in new.status.phase_transition_timestamps[known:]:
            observe(self._from_creation, each.phase, created, each.phase_transition_timestamp)

    async def collect(self) -> Iterable[Family]:
        durations = histogram(
            "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds",
            "From the creation of a migration to a phase.",
        )
        for phase, each in self._from_creation.items():
            durations.add_histogram(each, {"phase": phase})
        migrations = self._migrations.items()
        return durations, *families(migrations), *times(self._vmis.items(), migrations)


def families(migrations: Iterable[Migration]) -> Iterable[Family]:
    """Return the number of migrations in each phase, and the result of each that is over."""
    counts: Counter[str] = Counter()
    results = {
        phase: gauge(f"kubevirt_vmi_migration_{word}", f"1 for each migration that has {word}.")
        for phase, word in _RESULTS.items()
    }
    for each in migrations:
        if (family := results.get(each.status.phase)) is not None:
            name = {"vmim": each.metadata.name, "namespace": each.metadata.namespace}
            family.add(1, {"vmi": each.spec.vmi_name, **name})
        else:
            counts[_counted_as(each.status.phase)] += 1
    numbers = [
        gauge(
            f"kubevirt_vmi_migrations_in_{word}_phase", f"Migrations that are {word}.", counts[word]
        )
        for word in _COUNTED
    ]
    return *numbers, *results.values()


def _counted_as(phase: str) -> str:
    """Return the group that a phase counts in: from Scheduled on a migration counts as running."""
    return {"": "unset", PENDING: "pending", SCHEDULING: "scheduling"}.get(phase, "running")


def times(vmis: Iterable[VirtualMachineInstance], migrations: Iterable[Migration]) -> list[Family]:
    """Return when the latest migration of each VMI began and ended (vmistats_collector.go)."""
    started = gauge("kubevirt_vmi_migration_start_time_seconds", "When the migration began.")
    ended = gauge("kubevirt_vmi_migration_end_time_seconds", "When the migration ended.")
    names = {each.metadata.uid: each.metadata.name for each in migrations}
    for vmi in vmis:
        if (state := vmi.status.migration_state) is None:
            continue
        labels = {
            "node": vmi.status.node_name,
            "namespace": vmi.metadata.namespace,
            "name": vmi.metadata.name,
            "migration_name": names.get(state.migration_uid, ""),
        }
        if state.start_timestamp:
            started.add(_seconds(state.start_timestamp), labels)
        if state.end_timestamp:
            result = ("failed" if state.failed else "succeeded") if state.completed else ""
            ended.add(_seconds(state.end_timestamp), {**labels, "status": result})
    return [started, ended]


def _seconds(moment: str) -> float:
    return int(parse_rfc3339(moment).timestamp())
