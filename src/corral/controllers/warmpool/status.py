"""The status of a warm pool: counts, and the condition Ready with what keeps it from being so."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from corral.api.conditions import remove_condition, set_condition
from corral.api.errors import ApiError
from corral.api.kinds.corral.warm_pool import (
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
    WarmPoolStatus,
)
from corral.api.kinds.vmi.fork_state import SHARED, forked
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.controllers.warmpool.checkpoint_plan import COMPLETE, NOT_SUPPORTED, CheckpointPlan
from corral.controllers.warmpool.plan import BOOTS, Plan
from corral.reconcile.start_backoff import Streak

READY = "Ready"
CHECKPOINT_READY = "CheckpointReady"
"""Condition of pools whose spares start from a checkpoint: whether there is one."""
CHECKPOINT_PENDING = "CheckpointPending"
SPARES_READY = "SparesReady"
TARGET_NOT_FOUND = "TargetNotFound"
BACK_OFF = "BackOff"


class Reason(NamedTuple):
    """Why a warm pool is ready, or is not."""

    reason: str
    message: str

    @property
    def is_ready(self) -> bool:
        return self.reason == SPARES_READY


def reason(
    pool: VirtualMachineWarmPool,
    decided: Plan,
    *,
    has_template: bool,
    errors: Sequence[ApiError],
    streak: Streak | None,
    owned: Sequence[VirtualMachineInstance] = (),
    checkpoint: CheckpointPlan = BOOTS,
) -> Reason:
    """Return whether all desired spares are ready, and if not, why.

    A pool of no spares is ready when its checkpoint is.
    """
    if not has_template:
        target = pool.spec.target_ref
        named = f"{target.kind} {target.name}" if target is not None else "its template"
        message = f"spec.targetRef: {named} does not exist: create it, or delete this warm pool"
        return Reason(TARGET_NOT_FOUND, message)
    if errors:
        creates = decided.create or decided.create_source or checkpoint.make is not None
        failed = "FailedCreate" if creates else "FailedDelete"
        return Reason(failed, str(errors[0]))
    counts = f"{decided.ready_replicas} of {decided.desired} spares are ready"
    if not decided.desired and checkpoint.reason not in {"", COMPLETE}:
        return _without_checkpoint(checkpoint, streak)
    if decided.ready_replicas >= decided.desired:
        return Reason(SPARES_READY, counts)
    if streak is not None:
        return Reason(BACK_OFF, backing_off(streak))
    return _starting(counts, owned, checkpoint)


def _without_checkpoint(checkpoint: CheckpointPlan, streak: Streak | None) -> Reason:
    """Return what a pool without spares waits for."""
    if streak is not None:
        return Reason(BACK_OFF, backing_off(streak))
    is_final = checkpoint.reason == NOT_SUPPORTED
    return Reason(NOT_SUPPORTED if is_final else CHECKPOINT_PENDING, checkpoint.message)


def _starting(
    counts: str, owned: Sequence[VirtualMachineInstance], checkpoint: CheckpointPlan
) -> Reason:
    """Return what spares that start wait for."""
    if checkpoint.usable is None and not checkpoint.boots:
        return Reason(CHECKPOINT_PENDING, f"{counts}: {checkpoint.message}")
    conditions = (each for vmi in owned if (each := forked(vmi)) is not None)
    for condition in conditions:
        if condition.reason == SHARED:
            return Reason(SHARED, f"{counts}: {condition.message}")
    return Reason("SparesStarting", counts)


def backing_off(streak: Streak) -> str:
    """Return the message about spares that end right after their start."""
    last = f"{streak.name} ({streak.reason})" if streak.reason else streak.name
    return (
        f"{streak.count} spares ended right after their start, the last was {last}: "
        "waiting longer and longer before the next is made"
    )


def changed(
    pool: VirtualMachineWarmPool,
    decided: Plan,
    why: Reason,
    *,
    claimed: int,
    now: str,
    checkpoint: CheckpointPlan = BOOTS,
) -> Document | None:
    """Return the status of a pool; None where the stored one is the same."""
    conditions = set_condition(
        msgspec.to_builtins(pool.status.conditions),
        READY,
        "True" if why.is_ready else "False",
        reason=why.reason,
        message=why.message,
        now=now,
    )
    if checkpoint.reason:
        conditions = set_condition(
            conditions,
            CHECKPOINT_READY,
            "True" if checkpoint.reason == COMPLETE else "False",
            reason=checkpoint.reason,
            message=checkpoint.message,
            now=now,
        )
    else:
        conditions = remove_condition(conditions, CHECKPOINT_READY)
    usable = checkpoint.usable
    status = {
        "replicas": decided.replicas,
        "readyReplicas": decided.ready_replicas,
        "claimedReplicas": claimed,
        "checkpoint": "" if usable is None else usable.metadata.name,
        "labelSelector": f"{WARM_POOL_LABEL}={pool.metadata.name}",
        "observedGeneration": pool.metadata.generation,
        "conditions": conditions,
    }
    return None if msgspec.convert(status, WarmPoolStatus) == pool.status else status
