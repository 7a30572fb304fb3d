"""Decides which spares a warm pool creates and deletes. Pure.

Spares of another template than the present one go at once, as they are never handed out.  Those
that are too old go one at a time, once another one is ready in their place.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.corral.fork import fork_annotations
from corral.api.kinds.corral.spare_state import PAUSED, SPARE_STATE
from corral.api.kinds.corral.warm_pool import (
    CHECKPOINT_SOURCE_LABEL,
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.replicaset import ReplicaSetTemplate
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.api.time import parse_duration, parse_rfc3339
from corral.controllers.warmpool.checkpoint_plan import CheckpointPlan, source_hash
from corral.reconcile.objects import is_being_deleted, owner_reference
from corral.reconcile.ownership import patch_preconditions
from corral.reconcile.replicas import is_active, vmi_of, vmis_to_delete
from corral.reconcile.spares import is_ready_spare

BOOTS: Final = CheckpointPlan()
"""Of pools whose spares boot."""
BURST: Final = 250
"""Spares created or deleted in one sync; the next sync waits until the cache shows them."""

FINISHED = "it has ended"
LOST = "its pod is going, or its state is not known"
OUTDATED = "its template has changed"
NO_TARGET = "its target does not exist"
AGED = "it is older than spec.maxAge"
SURPLUS = "there are more than spec.replicas"


class Leaving(NamedTuple):
    """A spare to delete."""

    vmi: VirtualMachineInstance
    why: str
    """For the event: continues "Deleted spare NAME:"."""


class Plan(NamedTuple):
    """Observed spares, and the changes to make."""

    replicas: int
    """Spares that are neither finished nor being deleted, of whatever template."""
    ready_replicas: int
    """Spares that may be handed out."""
    desired: int
    create: int
    create_source: bool
    """Whether to create, besides, the VMI of which the checkpoint is made."""
    delete: tuple[Leaving, ...]
    switch: tuple[VirtualMachineInstance, ...]
    """Spares that are to be paused, or to run on, as ``spec.state`` has changed."""
    next_seconds: float | None
    """Seconds until the next spare is too old; None if none will be."""


def plan(
    pool: VirtualMachineWarmPool,
    owned: Iterable[VirtualMachineInstance],
    digest: str | None,
    now: datetime,
    *,
    checkpoint: CheckpointPlan = BOOTS,
    backing_off: bool = False,
    burst: int = BURST,
) -> Plan:
    """Return the plan for a warm pool and the spares that it owns.

    ``digest`` is the hash of the present template, None where the target does not exist;
    ``backing_off`` suppresses creation.
    """
    present = [vmi for vmi in owned if not is_being_deleted(vmi)]
    leaving = [Leaving(vmi, why) for vmi in present if (why := _why_unusable(vmi, digest))]
    unusable = {gone.vmi.metadata.uid for gone in leaving}
    usable = [vmi for vmi in present if vmi.metadata.uid not in unusable]
    kept = [vmi for vmi in usable if not source_hash(vmi)]
    sources = len(usable) - len(kept)
    desired = pool.spec.replicas if digest is not None else 0
    expiries = sorted(_expiries(pool, kept), key=lambda each: each[0])
    aged = [vmi for moment, vmi in expiries if moment <= now]
    target = desired + (1 if aged and desired else 0)
    surplus = vmis_to_delete(kept, max(len(kept) - target, 0))
    leaving += [Leaving(vmi, SURPLUS) for vmi in surplus]
    ready = [vmi for vmi in kept if is_ready_spare(vmi, pool.metadata.uid, digest or "")]
    if aged and len(ready) == len(kept) == target > desired:
        leaving.append(Leaving(aged[0], AGED))
    waits = backing_off or not (checkpoint.usable or checkpoint.boots)
    delays = (checkpoint.next_seconds, _seconds_until_next(expiries, now))
    return Plan(
        replicas=sum(map(is_active, present)),
        ready_replicas=len(ready),
        desired=desired,
        create=0 if waits else min(max(target - len(kept) - sources, 0), burst),
        create_source=checkpoint.needs_source and not backing_off,
        delete=tuple(leaving[:burst]),
        switch=tuple(vmi for vmi in kept if _spare_state(vmi) != spare_state(pool))[:burst],
        next_seconds=min((each for each in delays if each is not None), default=None),
    )


def new_spare(
    pool: VirtualMachineWarmPool,
    template: ReplicaSetTemplate,
    *,
    prefix: str,
    digest: str,
    checkpoint: VirtualMachineCheckpoint | None = None,
) -> Document:
    """Return the document of a new spare: its template, with the labels of a spare alone.

    It starts from ``checkpoint`` if there is one.
    """
    document = vmi_of(template, pool, prefix=prefix)
    metadata = document["metadata"]
    metadata["labels"] = {
        WARM_POOL_LABEL: pool.metadata.name,
        TEMPLATE_HASH_LABEL: digest,
    }
    annotations = {} if checkpoint is None else fork_annotations(checkpoint)
    if state := spare_state(pool):
        annotations[SPARE_STATE] = state
    if annotations:
        metadata["annotations"] = metadata.get("annotations", {}) | annotations
    return document


def switched(pool: VirtualMachineWarmPool, spare: VirtualMachineInstance) -> Document:
    """Return the merge patch by which a spare is kept as ``spec.state`` says.

    It conflicts with any other write, as one that hands the spare out.
    """
    annotations = {SPARE_STATE: spare_state(pool)}
    return {"metadata": {**patch_preconditions(spare), "annotations": annotations}}


def spare_state(pool: VirtualMachineWarmPool) -> str | None:
    """Return what the spares of a pool have in their annotation; None for those that run."""
    return PAUSED if pool.spec.state == PAUSED else None


def _spare_state(vmi: VirtualMachineInstance) -> str | None:
    return vmi.metadata.annotations.get(SPARE_STATE)


def new_source(
    pool: VirtualMachineWarmPool, template: ReplicaSetTemplate, *, prefix: str, digest: str
) -> Document:
    """Return the document of the VMI of which the checkpoint of a pool is made."""
    document = new_spare(pool, template, prefix=prefix, digest=digest)
    labels = document["metadata"]["labels"]
    labels[CHECKPOINT_SOURCE_LABEL] = labels.pop(TEMPLATE_HASH_LABEL)
    return document


def new_checkpoint(pool: VirtualMachineWarmPool, source: VirtualMachineInstance) -> Document:
    """Return the document of the checkpoint of a source, named by it: there is never a second."""
    return {
        "metadata": {
            "name": f"{pool.metadata.name}-{source.metadata.uid[:8]}",
            "namespace": pool.metadata.namespace,
            "labels": {
                WARM_POOL_LABEL: pool.metadata.name,
                TEMPLATE_HASH_LABEL: source_hash(source),
            },
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": {"source": {"kind": source.kind, "name": source.metadata.name}},
    }


def _why_unusable(vmi: VirtualMachineInstance, digest: str | None) -> str:
    if vmi.is_final:
        return FINISHED
    if not is_active(vmi):
        return LOST
    if digest is None:
        return NO_TARGET
    return "" if made_of(vmi) == digest else OUTDATED


def made_of(vmi: VirtualMachineInstance) -> str:
    """Return the hash of the template that a spare, or the source of a checkpoint, was made of."""
    return source_hash(vmi) or vmi.metadata.labels.get(TEMPLATE_HASH_LABEL, "")


def _expiries(
    pool: VirtualMachineWarmPool, kept: Sequence[VirtualMachineInstance]
) -> Iterator[tuple[datetime, VirtualMachineInstance]]:
    """Yield the moment at which each spare becomes too old."""
    if pool.spec.max_age is None:
        return
    longest = timedelta(seconds=parse_duration(pool.spec.max_age))
    for vmi in kept:
        if created := vmi.metadata.creation_timestamp:
            yield parse_rfc3339(created) + longest, vmi


def _seconds_until_next(
    expiries: Sequence[tuple[datetime, VirtualMachineInstance]], now: datetime
) -> float | None:
    later = ((moment - now).total_seconds() for moment, _ in expiries)
    return next((seconds for seconds in later if seconds > 0), None)
