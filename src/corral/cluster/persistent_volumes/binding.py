"""What becomes of a claim and of a volume, and what that changes in both.  Pure.

A claim and its volume name each other: ``spec.volumeName`` and ``spec.claimRef``.  The side of the
volume is written first, under the version that was looked at, so that no two claims get one volume;
what is cut off in between is taken up from what stands there.  Rules and words are those of
Kubernetes' persistent volume controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.storage.common import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND,
    BOUND_BY_CONTROLLER,
    DELETE,
    FAILED,
    IN_TREE,
    LOST,
    OLD_PROVISIONER,
    PENDING,
    PROVISIONED_BY,
    PROVISIONER,
    RECYCLE,
    RELEASED,
    SELECTED_NODE,
    STORAGE,
    class_name,
)
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.api.volume_binding import best, capacity, claim_of, fault, is_delayed, is_for
from corral.reconcile.objects import annotations_of, key_of, uid_of, version_of


class Told(NamedTuple):
    """An event: its type, reason and message."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """What becomes of a claim.

    volume: the volume that it gets, or has.
    annotations: what the claim is to say: who shall make its volume.
    storage_class: the default class, for a claim that was made before there was one.
    told: what people are told.
    """

    phase: str = PENDING
    volume: PersistentVolume | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""
    told: Told | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlan:
    """What becomes of a volume.

    unbind: its claim has another volume: it is for nobody again.
    told: why it failed.
    """

    phase: str
    unbind: bool = False
    told: Told | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a claim's fate depends on.

    named: the volume that the claim names.
    candidates: the volumes of its class, and those that name the claim.
    storage_class: its class.
    default_class: the name of the default class.
    consumers: names of the pods that use the claim and wait for a node.
    """

    named: PersistentVolume | None = None
    candidates: Iterable[PersistentVolume] = ()
    storage_class: StorageClass | None = None
    default_class: str = ""
    consumers: Iterable[str] = ()


def plan_claim(claim: PersistentVolumeClaim, around: Surroundings) -> ClaimPlan:
    """What becomes of a claim."""
    if BIND_COMPLETED in annotations_of(claim):
        return _kept(claim, around.named)
    if class_name(claim) is None and around.default_class:
        return ClaimPlan(storage_class=around.default_class)
    if claim.spec is not None and claim.spec.volumeName:
        return _named(claim, around.named)
    delayed = is_delayed(around.storage_class)
    found = best(claim, around.candidates, reserved_only=delayed)
    if found is not None:
        return ClaimPlan(phase=BOUND, volume=found)
    if delayed and SELECTED_NODE not in annotations_of(claim):
        return ClaimPlan(told=_awaited(sorted(around.consumers)))
    return _provisioned(claim, around.storage_class)


def _kept(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    """A claim that had its volume keeps it, or is lost."""
    if not (claim.spec and claim.spec.volumeName):
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, told=Told("Warning", "ClaimLost", text))
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, told=Told("Warning", "ClaimLost", text))
    if claim_of(volume) is None or is_for(volume, claim):
        return ClaimPlan(phase=BOUND, volume=volume)
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return ClaimPlan(phase=LOST, told=Told("Warning", "ClaimMisbound", text))


def _named(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    """A claim whose user chose a volume gets that one, or waits for it."""
    if volume is None:
        return ClaimPlan()
    name = key_of(volume).name
    if is_for(volume, claim):
        return ClaimPlan(phase=BOUND, volume=volume)
    if claim_of(volume) is not None:
        text = f'volume "{name}" already bound to a different claim.'
        return ClaimPlan(told=Told("Warning", "FailedBinding", text))
    if why := fault(claim, volume):
        text = f'Cannot bind to requested volume "{name}": {why}'
        return ClaimPlan(told=Told("Warning", "VolumeMismatch", text))
    return ClaimPlan(phase=BOUND, volume=volume)


def _awaited(pods: list[str]) -> Told:
    if not pods:
        text = "waiting for first consumer to be created before binding"
        return Told("Normal", "WaitForFirstConsumer", text)
    noun = "pod" if len(pods) == 1 else "pods"
    text = f"waiting for {noun} {','.join(pods)} to be scheduled"
    return Told("Normal", "WaitForPodScheduled", text)


def _provisioned(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> ClaimPlan:
    """A claim that no volume suits gets one made, where its class says by whom."""
    name = class_name(claim)
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return ClaimPlan(told=Told("Normal", "FailedBinding", text))
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{name}" not found'
        return ClaimPlan(told=Told("Warning", "ProvisioningFailed", text))
    provisioner = storage_class.provisioner
    if provisioner.startswith(IN_TREE):
        text = f"no volume plugin matched name: {provisioner}"
        return ClaimPlan(told=Told("Warning", "ProvisioningFailed", text))
    text = (
        "Waiting for a volume to be created either by the external provisioner "
        f"'{provisioner}' or manually by the system administrator. If volume creation is delayed, "
        "please verify that the provisioner is running and correctly registered."
    )
    return ClaimPlan(
        annotations={OLD_PROVISIONER: provisioner, PROVISIONER: provisioner},
        told=Told("Normal", "ExternalProvisioning", text),
    )


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumePlan:
    """What becomes of a volume; ``claim`` is the one that it names."""
    named = claim_of(volume)
    phase = (volume.status and volume.status.phase) or PENDING
    if named is None or not named.uid:
        return VolumePlan(phase=AVAILABLE)
    if claim is None or uid_of(claim) != named.uid:
        return _released(volume, phase)
    has = (claim.spec and claim.spec.volumeName) or ""
    if not has:
        return VolumePlan(phase=phase)
    if has == key_of(volume).name:
        return VolumePlan(phase=BOUND)
    if PROVISIONED_BY in annotations_of(volume) and _policy(volume) == DELETE:
        return _released(volume, phase)  # made twice for one claim: this one is too much
    return VolumePlan(phase=AVAILABLE, unbind=True)


def _released(volume: PersistentVolume, phase: str) -> VolumePlan:
    """Who made a volume deletes it; what nobody made can be neither deleted nor wiped."""
    if phase == FAILED:
        return VolumePlan(phase=FAILED)
    name, policy = key_of(volume).name, _policy(volume)
    if policy == RECYCLE:
        text = "No recycler plugin found for the volume!"
        return VolumePlan(phase=FAILED, told=Told("Warning", "VolumeFailedRecycle", text))
    if policy == DELETE and PROVISIONED_BY not in annotations_of(volume):
        text = (
            f'error getting deleter volume plugin for volume "{name}": '
            "no deletable volume plugin matched"
        )
        return VolumePlan(phase=FAILED, told=Told("Warning", "VolumeFailedDelete", text))
    return VolumePlan(phase=RELEASED)


def _policy(volume: PersistentVolume) -> str:
    return (volume.spec and volume.spec.persistentVolumeReclaimPolicy) or ""


# ------------------------------------------------------------------- patches


def unreserve(volume: PersistentVolume) -> Document:
    """The patch by which a volume is for nobody again; a name that a user wrote stays."""
    metadata: Document = {"resourceVersion": version_of(volume)}
    if BOUND_BY_CONTROLLER not in annotations_of(volume):
        gone: Document = {"uid": None, "resourceVersion": None}
        return {"metadata": metadata, "spec": {"claimRef": gone}}
    metadata["annotations"] = {BOUND_BY_CONTROLLER: None}
    return {"metadata": metadata, "spec": {"claimRef": None}}


def volume_status(
    volume: PersistentVolume, phase: str, now: datetime, message: str = ""
) -> Document | None:
    """The patch that says a volume's phase; None where it is said."""
    status = volume.status
    if status is not None and (status.phase, status.message or "") == (phase, message):
        return None
    said = {
        "phase": phase,
        "message": message or None,
        "lastPhaseTransitionTime": rfc3339(now),
    }
    return {"metadata": {"resourceVersion": version_of(volume)}, "status": said}


def take(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Document | None:
    """The patch by which a claim names its volume; None where it does."""
    name = key_of(volume).name
    chosen = claim.spec and claim.spec.volumeName
    if chosen == name and BIND_COMPLETED in annotations_of(claim):
        return None
    annotations = {BIND_COMPLETED: "yes"}
    if not chosen:
        annotations[BOUND_BY_CONTROLLER] = "yes"
    metadata = {"resourceVersion": version_of(claim), "annotations": annotations}
    return {"metadata": metadata, "spec": {"volumeName": name}}


def claim_status(
    claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None
) -> Document | None:
    """The patch that says a claim's phase, and what it has; None where that is said.

    The size that is said once it is bound is that of the expansion's end, not of the volume.
    """
    old = claim.status
    said: Document = {}
    if old is None or old.phase != phase:
        said["phase"] = phase
    modes = list((volume.spec and volume.spec.accessModes) or ()) if volume is not None else None
    if (old and old.accessModes) != modes:
        said["accessModes"] = modes
    if volume is None:
        if old is not None and old.capacity:
            said["capacity"] = None
    elif "phase" in said:
        said["capacity"] = {STORAGE: str(capacity(volume))}
    if not said:
        return None
    return {"metadata": {"resourceVersion": version_of(claim)}, "status": said}
