"""Earlier migrations of a VMI: the back-off after failures, and those that are deleted.  Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from lightkube.models.core_v1 import Pod

from corral.api.kinds.kubevirt.migration import (
    EVACUATION,
    FAILED,
    SUCCEEDED,
    WORKLOAD_UPDATE,
    VirtualMachineInstanceMigration,
)
from corral.api.time import parse_rfc3339
from corral.controllers.vmi.lifecycle import has_ended
from corral.reconcile.objects import is_being_deleted, key_of

KEPT: Final = 5
"""Migrations of a VMI that are kept when they are over (KubeVirt).

As many of its pods that have ended are kept, besides those of the migrations.
"""
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


def left_behind(pods: Iterable[Pod], current: str, migrations: Iterable[Migration]) -> list[Pod]:
    """Return the ended pods of a VMI that are to be deleted: all but the newest.

    Pods of present migrations go with those; a user may have deleted the others.  ``current``: the
    name of the pod whose end is that of the VMI.
    """
    named = {current}
    for each in migrations:
        if (state := each.status.migration_state) is not None:
            named |= {state.source_pod, state.target_pod}
    ended = [each for each in pods if has_ended(each) and key_of(each).name not in named]
    ended.sort(key=_pod_age)
    return ended[: max(0, len(ended) - KEPT)]


def age(migration: Migration) -> tuple[str, str]:
    """Return a key that sorts the oldest migration first."""
    return migration.metadata.creation_timestamp or "", migration.metadata.name


def _pod_age(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creationTimestamp if pod.metadata is not None else None
    return created.isoformat() if created else "", key_of(pod).name


def _is_automatic(migration: Migration) -> bool:
    return not _AUTOMATIC.isdisjoint(migration.metadata.annotations)


def _failed_at(migration: Migration) -> datetime | None:
    for each in migration.status.phase_transition_timestamps:
        if each.phase == FAILED and each.phase_transition_timestamp is not None:
            return parse_rfc3339(each.phase_transition_timestamp)
    return None
