"""What a DataVolume needs next: its claim made or taken over, its status told.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi import permitted_clones, population
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import (
    ADOPT_CLAIM,
    ClaimCopy,
    DataVolume,
    DataVolumeStatus,
    Source,
    requested_size,
)
from corral.api.kinds.storage.common import WAIT_FOR_FIRST_CONSUMER
from corral.api.object import Document, Key
from corral.api.quantity import amount
from corral.controllers.datavolume import claim_template as claims, status as statuses
from corral.controllers.datavolume.status import Problem, Telling
from corral.reconcile.objects import annotations_of, controller_uid, is_being_deleted, key_of
from corral.reconcile.ownership import owners_with, patch_preconditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is there.

    claim: of the DataVolume's name.
    reference: the DataSource that it names.
    copied: the claim that it is to be a copy of.
    classes: all storage classes.
    now: the present moment, RFC 3339.
    """

    claim: PersistentVolumeClaim | None
    reference: DataSource | None
    copied: PersistentVolumeClaim | None
    classes: Sequence[StorageClass]
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do.

    create: the claim to make.
    take_over: the change by which the claim, made by somebody else, becomes the DataVolume's own.
    status: what the status shall be.
    events: what to tell.
    """

    create: Document | None = None
    take_over: Document | None = None
    status: DataVolumeStatus
    events: Sequence[Telling] = ()


def source_of(volume: DataVolume, reference: DataSource | None) -> Source | None:
    """Where the content comes from; None where that is an object which is missing or says nothing.

    A claim to copy is named with its namespace.
    """
    source = volume.spec.source
    if source is None and reference is not None and reference.spec.source.pvc is not None:
        source = Source(pvc=reference.spec.source.pvc)
        default = reference.metadata.namespace
    else:
        default = volume.metadata.namespace
    if source is None or source.pvc is None:
        return source
    copied = source.pvc
    return Source(pvc=ClaimCopy(name=copied.name, namespace=copied.namespace or default))


def reference_key(volume: DataVolume) -> Key | None:
    """The DataSource that a DataVolume names."""
    named = volume.spec.source_ref
    return Key(named.namespace or volume.metadata.namespace, named.name) if named else None


def copied_key(source: Source | None) -> Key | None:
    """The claim that is to be copied."""
    return Key(source.pvc.namespace, source.pvc.name) if source and source.pvc else None


def named_key_of(reference: DataSource) -> Key | None:
    """The DataSource that a DataSource means."""
    other = reference.spec.source.data_source
    return Key(reference.metadata.namespace, other.name) if other is not None else None


def copied_key_of(reference: DataSource) -> Key | None:
    """The claim that a DataSource means."""
    copied = reference.spec.source.pvc
    return Key(copied.namespace or reference.metadata.namespace, copied.name) if copied else None


def plan(volume: DataVolume, seen: Observed) -> Plan:
    """What to do about a DataVolume that is to stay."""
    source = source_of(volume, seen.reference)
    if seen.claim is not None:
        return _with_claim(volume, source or Source(), seen.claim, seen)
    if source is None:
        return _hindered(volume, _no_source(volume, seen.reference), seen.now)
    if source.pvc is not None and (
        problem := _may_not_copy(volume, source.pvc)
        or _cannot_copy(volume, source.pvc, seen.copied)
    ):
        return _hindered(volume, problem, seen.now)
    size = claims.size(seen.copied) if seen.copied is not None else None
    try:
        create = claims.document(volume, source, seen.classes, size)
    except claims.ClaimError as error:
        return _hindered(volume, Problem("ErrClaimNotValid", str(error)), seen.now)
    return Plan(create=create, status=statuses.without_claim(volume, None, seen.now))


def _with_claim(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, seen: Observed
) -> Plan:
    name = key_of(claim).name
    ours = controller_uid(claim) == volume.metadata.uid
    offered = annotations_of(claim).get(population.POPULATED_FOR) == volume.metadata.name
    if is_being_deleted(claim):
        message = f'Resource "{name}" marked for deletion'
        return _hindered(volume, Problem("ErrResourceMarkedForDeletion", message), seen.now)
    adopts = annotations_of(volume).get(ADOPT_CLAIM) == "true"
    if not ours and (controller_uid(claim) or not (offered or adopts)):
        message = f'Resource "{name}" already exists and is not managed by DataVolume'
        return _hindered(volume, Problem("ErrResourceExists", message), seen.now)
    named = claim.spec.storageClassName if claim.spec else None
    found = claims.class_of(named, seen.classes)
    waits = found is not None and found.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER
    status, events = statuses.with_claim(volume, source, claim, waits=waits, now=seen.now)
    return Plan(take_over=None if ours else _owned(claim, volume), status=status, events=events)


def _owned(claim: PersistentVolumeClaim, volume: DataVolume) -> Document:
    """The claim's change to the DataVolume's own: what it holds stays as it is."""
    metadata: Document = {
        **patch_preconditions(claim),
        "ownerReferences": owners_with(claim, volume),
    }
    if population.is_populated(claim):
        metadata["annotations"] = {population.POPULATED_FOR: volume.metadata.name}
    return {"metadata": metadata}


def _no_source(volume: DataVolume, reference: DataSource | None) -> Problem:
    named = volume.spec.source_ref
    if reference is not None:
        name = reference.metadata.name
        message = f"Empty source field in '{name}'. DataSource may not be ready yet"
        return Problem("NotFound", message)
    key = reference_key(volume)
    return Problem("NotFound", f"{named.kind if named else 'Source'} {key} not found")


def _may_not_copy(volume: DataVolume, copy: ClaimCopy) -> Problem | None:
    """A claim of another namespace is copied only if who wrote the DataVolume was asked about it.

    They were, of what the DataVolume names itself; a DataSource may mean another claim since then.
    """
    reference, namespace = reference_key(volume), volume.metadata.namespace
    if volume.spec.source is not None or reference is None or copy.namespace == namespace:
        return None
    claim = Key(copy.namespace, copy.name)
    if permitted_clones.permits(volume.metadata.annotations, reference, claim):
        return None
    return Problem(
        "CloneNotPermitted",
        f"DataSource {reference} leads to a claim in namespace {copy.namespace} that nobody was "
        "allowed to copy by it when this DataVolume, or what it is made for, was written: who may "
        f"create datavolumes/source in namespace {copy.namespace} is to write that anew",
    )


def _cannot_copy(
    volume: DataVolume, copy: ClaimCopy, copied: PersistentVolumeClaim | None
) -> Problem | None:
    if copied is None:
        return Problem("CloneWithoutSource", f"The source pvc {copy.name} doesn't exist")
    claim = volume.spec.pvc or volume.spec.storage
    wanted = requested_size(claim.resources if claim is not None else None)
    has = claims.size(copied)
    if wanted is not None and has is not None and amount(wanted) < amount(has):
        smaller = "target resources requests storage size is smaller than the source"
        return Problem(
            "CloneValidationFailed",
            f"The clone doesn't meet the validation requirements: {smaller} {wanted} < {has}",
        )
    return None


def _hindered(volume: DataVolume, problem: Problem, now: str) -> Plan:
    """There is no claim, and why; told once for each reason."""
    before = statuses.find(volume.status.conditions, "Bound")
    status = statuses.without_claim(volume, problem, now)
    known = before is not None and (before.reason, before.message) == (
        problem.reason,
        problem.message,
    )
    events = () if known else (Telling("Warning", problem.reason, problem.message),)
    return Plan(status=status, events=events)
