"""The outdated VMIs to migrate and to evict now (KubeVirt's workload-updater.go).  Pure.

Limits are KubeVirt's; the order is not: it chooses at random, here those whose update has failed
come last, so that they hold up no other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.api.kinds.kubevirt.migration import (
    FAILED,
    PENDING,
    WORKLOAD_UPDATE,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.kubevirt.workload_update import WorkloadUpdateStrategy
from corral.api.kinds.vmi.live_migration import is_live_migratable
from corral.api.kinds.vmi.live_update import MIGRATION_REQUIRED, has_condition
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.reconcile.objects import is_being_deleted

VMI = VirtualMachineInstance
Migration = VirtualMachineInstanceMigration

_WAITING: Final = frozenset({"", PENDING})
_LEAST_SECONDS: Final = 1.0
"""The least time between two batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state from which the update is planned.

    outdated: VMIs that run, and are to be renewed.
    migrations: those of all VMIs.
    parallel: how many migrations may run at once.
    evicted_at: when the last batch was evicted; tried_at: when an eviction of a VMI was last tried,
    by uid.  Both are in seconds, as ``now``.
    """

    outdated: Sequence[VMI]
    migrations: Sequence[Migration]
    strategy: WorkloadUpdateStrategy
    parallel: int
    evicted_at: float
    tried_at: Mapping[str, float]
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """VMIs to migrate and to evict now; seconds until the next batch, 0 if there is none."""

    migrate: Sequence[VMI] = ()
    evict: Sequence[VMI] = ()
    requeue_seconds: float = 0.0


def is_updatable(vmi: VMI) -> bool:
    """Return whether a VMI runs, and is not about to end."""
    return vmi.status.phase == "Running" and not is_being_deleted(vmi)


def must_migrate(vmi: VMI) -> bool:
    """Return whether a VMI has to migrate to a node with room for its sockets or memory."""
    return has_condition(vmi, MIGRATION_REQUIRED)


def plan(observed: Observed) -> Plan:
    """Return the plan for all outdated VMIs."""
    strategy = observed.strategy
    unfinished = [each for each in observed.migrations if not each.is_final]
    moving = {each.vmi_key for each in unfinished}
    idle = [vmi for vmi in observed.outdated if vmi.key not in moving]
    movable, others = [], []
    for vmi in idle:
        if strategy.migrates and is_live_migratable(vmi):
            movable.append(vmi)
        elif strategy.evicts and not must_migrate(vmi):
            others.append(vmi)
    failures = Counter(each.vmi_key for each in observed.migrations if each.status.phase == FAILED)
    movable.sort(key=lambda vmi: (failures[vmi.key], _age(vmi)))
    others.sort(key=lambda vmi: (observed.tried_at.get(vmi.metadata.uid, float("-inf")), _age(vmi)))
    # One that waits after a failure, for minutes perhaps, takes no place.
    active = sum(
        each.status.phase not in _WAITING or not failures[each.vmi_key] for each in unfinished
    )
    waits = max(0.0, observed.evicted_at + strategy.interval_seconds - observed.now)
    evict = others[: strategy.batch_eviction_size] if not waits else []
    # Those of this batch wait for the next one, too: their evictions may be refused.
    next_batch = max(_LEAST_SECONDS, strategy.interval_seconds if evict else waits)
    return Plan(
        migrate=movable[: max(0, observed.parallel - active)],
        evict=evict,
        requeue_seconds=next_batch if others and strategy.batch_eviction_size else 0.0,
    )


def is_obsolete(migration: Migration, vmi: VMI | None, *, outdated: bool) -> bool:
    """Return whether a migration that was to renew a VMI is to be cancelled.

    The VMI's node starts machines in the same launcher again, and the guest has not moved.
    """
    if WORKLOAD_UPDATE not in migration.metadata.annotations or migration.is_final:
        return False
    if is_being_deleted(migration) or vmi is None or outdated or not is_updatable(vmi):
        return False
    state = migration.state_in(vmi)
    return state is None or not state.target_node_domain_ready_timestamp


def _age(vmi: VMI) -> tuple[str, Key]:
    return vmi.metadata.creation_timestamp or "", vmi.key
