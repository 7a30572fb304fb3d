"""Decides which spares a warm pool creates and deletes. Pure.

Spares of another template than the present one go at once, as they are never handed out.  Those
that are too old go one at a time, while all others are ready: a pool never lacks more than one.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from corral.api.kinds.corral.warm_pool import (
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.replicaset import ReplicaSetTemplate
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.api.time import parse_duration, parse_rfc3339
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.replicas import is_active, vmi_of, vmis_to_delete
from corral.reconcile.spares import is_ready_spare

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
    delete: tuple[Leaving, ...]
    next_seconds: float | None
    """Seconds until the next spare is too old; None if none will be."""


def plan(
    pool: VirtualMachineWarmPool,
    owned: Iterable[VirtualMachineInstance],
    digest: str | None,
    now: datetime,
    *,
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
    kept = [vmi for vmi in present if vmi.metadata.uid not in unusable]
    desired = pool.spec.replicas if digest is not None else 0
    surplus = vmis_to_delete(kept, max(len(kept) - desired, 0))
    leaving += [Leaving(vmi, SURPLUS) for vmi in surplus]
    ready = [vmi for vmi in kept if is_ready_spare(vmi, pool.metadata.uid, digest or "")]
    expiries = sorted(_expiries(pool, kept), key=lambda each: each[0])
    if expiries and len(ready) == len(kept) == desired:
        moment, oldest = expiries[0]
        if moment <= now:
            leaving.append(Leaving(oldest, AGED))
    return Plan(
        replicas=sum(map(is_active, present)),
        ready_replicas=len(ready),
        desired=desired,
        create=0 if backing_off else min(max(desired - len(kept), 0), burst),
        delete=tuple(leaving[:burst]),
        next_seconds=_seconds_until_next(expiries, now),
    )


def new_spare(
    pool: VirtualMachineWarmPool, template: ReplicaSetTemplate, *, prefix: str, digest: str
) -> Document:
    """Return the document of a new spare: its template, with the labels of a spare alone."""
    document = vmi_of(template, pool, prefix=prefix)
    document["metadata"]["labels"] = {
        WARM_POOL_LABEL: pool.metadata.name,
        TEMPLATE_HASH_LABEL: digest,
    }
    return document


def _why_unusable(vmi: VirtualMachineInstance, digest: str | None) -> str:
    if vmi.is_final:
        return FINISHED
    if not is_active(vmi):
        return LOST
    if digest is None:
        return NO_TARGET
    return "" if vmi.metadata.labels.get(TEMPLATE_HASH_LABEL) == digest else OUTDATED


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
