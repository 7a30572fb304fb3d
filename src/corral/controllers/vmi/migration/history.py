"""Earlier migrations of a VMI: the back-off after failures, and those that are deleted.  Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from corral.api.kinds.kubevirt.migration import (
    EVACUATION,
    FAILED,
    SUCCEEDED,
    WORKLOAD_UPDATE,
    VirtualMachineInstanceMigration,
)
from corral.api.time import parse_rfc3339
from corral.reconcile.objects import is_being_deleted

KEPT: Final = 5
"""Migrations of a VMI that are kept when they are over (KubeVirt)."""
FIRST_SECONDS: Final = 20
"""Back-off after one failed migration; it doubles with each further one in a row."""
_AUTOMATIC: Final = frozenset({EVACUATION, WORKLOAD_UPDATE})

Migration = VirtualMachineInstanceMigration


def backoff_seconds(migration: Migration, others: Iterable[Migration], now: datetime) -> float:
    """Return for how long a migration waits after failures of earlier ones of its VMI.

    Only those that a controller has created wait: users' start at once (handleMigrationBackoff).
    """
    if not _is_automatic(migration):
        return 0.0
    # All that are over count: one that has failed within a second is as old as the next one.
    over = [each for each in others if _is_automatic(each) and each.is_final]
    over.sort(key=age, reverse=True)
    failures: list[Migration] = []
    for each in over:
        if each.status.phase == SUCCEEDED:
            break
        if each.status.phase == FAILED and not is_being_deleted(each):
            failures.append(each)
    if not failures or (failed := _failed_at(failures[0])) is None:
        return 0.0
    waits: float = FIRST_SECONDS * 2 ** (len(failures) - 1)
    return max(0.0, waits - (now - failed).total_seconds())


def expired(migrations: Iterable[Migration]) -> list[Migration]:
    """Return the finished migrations of a VMI that are to be deleted: all but the newest."""
    finished = [each for each in migrations if each.is_final and not is_being_deleted(each)]
    finished.sort(key=age)
    return finished[: max(0, len(finished) - KEPT)]


def old_pod(migration: Migration) -> str:
    """Return the pod that goes with a deleted migration: the side that the guest is not on."""
    state = migration.status.migration_state
    if state is None:
        return ""
    if state.failed:
        return state.target_pod
    return state.source_pod if state.completed else ""


def age(migration: Migration) -> tuple[str, str]:
    """Return a key that sorts the oldest migration first."""
    return migration.metadata.creation_timestamp or "", migration.metadata.name


def _is_automatic(migration: Migration) -> bool:
    return not _AUTOMATIC.isdisjoint(migration.metadata.annotations)


def _failed_at(migration: Migration) -> datetime | None:
    for each in migration.status.phase_transition_timestamps:
        if each.phase == FAILED and each.phase_transition_timestamp is not None:
            return parse_rfc3339(each.phase_transition_timestamp)
    return None
