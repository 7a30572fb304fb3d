"""Plans the next step for a DataVolume: create or adopt its claim, update its status. Pure."""

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
from corral.controllers.datavolume.status import Event, Problem
from corral.reconcile.objects import annotations_of, controller_uid, is_being_deleted, key_of
from corral.reconcile.ownership import owners_with, patch_preconditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Observed objects.

    claim: the claim with the DataVolume's name.
    reference: the DataSource that it resolves to.
    source_claim: the claim to clone.
    classes: all storage classes.
    now: the present time, RFC 3339.
    """

    claim: PersistentVolumeClaim | None
    reference: DataSource | None
    source_claim: PersistentVolumeClaim | None
    classes: Sequence[StorageClass]
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The actions of a sync.

    create: the claim to create.
    adopt: the patch that makes an existing claim the DataVolume's own.
    status: the desired status.
    events: events to record.
    """

    create: Document | None = None
    adopt: Document | None = None
    status: DataVolumeStatus
    events: Sequence[Event] = ()


def source_of(volume: DataVolume, reference: DataSource | None) -> Source | None:
    """Return the source of the content; None if the referenced object is missing or empty.

    A claim to clone gets its namespace.
    """
    source = volume.spec.source
    if source is None and reference is not None and reference.spec.source.pvc is not None:
        source = Source(pvc=reference.spec.source.pvc)
        default = reference.metadata.namespace
    else:
        default = volume.metadata.namespace
    if source is None or source.pvc is None:
        return source
    source_claim = source.pvc
    return Source(
        pvc=ClaimCopy(name=source_claim.name, namespace=source_claim.namespace or default)
    )


def reference_key(volume: DataVolume) -> Key | None:
    """Return the key of the DataSource that a DataVolume refers to."""
    named = volume.spec.source_ref
    return Key(named.namespace or volume.metadata.namespace, named.name) if named else None


def source_claim_key(source: Source | None) -> Key | None:
    """Return the key of the claim to clone."""
    return Key(source.pvc.namespace, source.pvc.name) if source and source.pvc else None


def target_key_of(reference: DataSource) -> Key | None:
    """Return the key of the DataSource that a DataSource refers to."""
    other = reference.spec.source.data_source
    return Key(reference.metadata.namespace, other.name) if other is not None else None


def claim_key_of(reference: DataSource) -> Key | None:
    """Return the key of the claim that a DataSource refers to."""
    source_claim = reference.spec.source.pvc
    return (
        Key(source_claim.namespace or reference.metadata.namespace, source_claim.name)
        if source_claim
        else None
    )


def plan(volume: DataVolume, observed: Observed) -> Plan:
    """Return the plan for a DataVolume that is not being deleted."""
    source = source_of(volume, observed.reference)
    if observed.claim is not None:
        return _with_claim(volume, source or Source(), observed.claim, observed)
    if source is None:
        return _without_claim(volume, _no_source(volume, observed.reference), observed.now)
    if source.pvc is not None and (
        problem := _clone_authorization(volume, source.pvc)
        or _clone_validation(volume, source.pvc, observed.source_claim)
    ):
        return _without_claim(volume, problem, observed.now)
    size = claims.size(observed.source_claim) if observed.source_claim is not None else None
    try:
        create = claims.document(volume, source, observed.classes, size)
    except claims.ClaimError as error:
        return _without_claim(volume, Problem("ErrClaimNotValid", str(error)), observed.now)
    return Plan(create=create, status=statuses.without_claim(volume, None, observed.now))


def _with_claim(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, observed: Observed
) -> Plan:
    name = key_of(claim).name
    ours = controller_uid(claim) == volume.metadata.uid
    populated = annotations_of(claim).get(population.POPULATED_FOR) == volume.metadata.name
    if is_being_deleted(claim):
        message = f'Resource "{name}" marked for deletion'
        return _without_claim(
            volume, Problem("ErrResourceMarkedForDeletion", message), observed.now
        )
    adopts = annotations_of(volume).get(ADOPT_CLAIM) == "true"
    if not ours and (controller_uid(claim) or not (populated or adopts)):
        message = f'Resource "{name}" already exists and is not managed by DataVolume'
        return _without_claim(volume, Problem("ErrResourceExists", message), observed.now)
    named = claim.spec.storageClassName if claim.spec else None
    found = claims.class_of(named, observed.classes)
    waits = found is not None and found.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER
    status, events = statuses.with_claim(volume, source, claim, waits=waits, now=observed.now)
    return Plan(adopt=None if ours else _adoption(claim, volume), status=status, events=events)


def _adoption(claim: PersistentVolumeClaim, volume: DataVolume) -> Document:
    """Return the patch that adopts a claim; its content stays as it is."""
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


def _clone_authorization(volume: DataVolume, copy: ClaimCopy) -> Problem | None:
    """Return a problem unless cloning from another namespace was authorized.

    Admission authorized what the DataVolume names itself; a DataSource may refer to another claim
    since then.
    """
    reference, namespace = reference_key(volume), volume.metadata.namespace
    if volume.spec.source is not None or reference is None or copy.namespace == namespace:
        return None
    claim = Key(copy.namespace, copy.name)
    if permitted_clones.permits(volume.metadata.annotations, reference, claim):
        return None
    return Problem(
        "CloneNotPermitted",
        f"DataSource {reference} refers to a claim in namespace {copy.namespace}, and cloning it "
        "was not authorized when this DataVolume, or the object that owns it, was written: a user "
        f"who may create datavolumes/source in namespace {copy.namespace} must write it again",
    )


def _clone_validation(
    volume: DataVolume, copy: ClaimCopy, source_claim: PersistentVolumeClaim | None
) -> Problem | None:
    if source_claim is None:
        return Problem("CloneWithoutSource", f"The source pvc {copy.name} doesn't exist")
    claim = volume.spec.pvc or volume.spec.storage
    target = requested_size(claim.resources if claim is not None else None)
    source = claims.size(source_claim)
    if target is not None and source is not None and amount(target) < amount(source):
        smaller = "target resources requests storage size is smaller than the source"
        return Problem(
            "CloneValidationFailed",
            f"The clone doesn't meet the validation requirements: {smaller} {target} < {source}",
        )
    return None


def _without_claim(volume: DataVolume, problem: Problem, now: str) -> Plan:
    """Return a plan without a claim, and an event if the problem is new."""
    before = statuses.find(volume.status.conditions, "Bound")
    status = statuses.without_claim(volume, problem, now)
    reported = before is not None and (before.reason, before.message) == (
        problem.reason,
        problem.message,
    )
    events = () if reported else (Event("Warning", problem.reason, problem.message),)
    return Plan(status=status, events=events)
