"""Plans the binding of claims and volumes. Pure.

A claim and its volume refer to each other: ``spec.volumeName`` and ``spec.claimRef``. The volume is
written first, guarded by its resource version, so that no two claims get one volume; an interrupted
binding continues from what is stored. Rules and messages are those of Kubernetes' persistent volume
controller.
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


class Event(NamedTuple):
    """An event: its type, reason and message."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """Desired state of a claim.

    volume: the volume to bind, or bound already.
    annotations: annotations to add, which name the provisioner.
    storage_class: the default class, for a claim older than it.
    event: the event to record.
    """

    phase: str = PENDING
    volume: PersistentVolume | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""
    event: Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlan:
    """Desired state of a volume.

    unbind: remove its claimRef: its claim has another volume.
    event: the event about its failure.
    """

    phase: str
    unbind: bool = False
    event: Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimInputs:
    """Inputs of the plan of a claim.

    named: the volume that the claim names.
    candidates: the volumes of its class, and those that refer to the claim.
    storage_class: its class.
    default_class: the name of the default class.
    consumers: names of unscheduled pods that use the claim.
    """

    named: PersistentVolume | None = None
    candidates: Iterable[PersistentVolume] = ()
    storage_class: StorageClass | None = None
    default_class: str = ""
    consumers: Iterable[str] = ()


def plan_claim(claim: PersistentVolumeClaim, inputs: ClaimInputs) -> ClaimPlan:
    """Return the plan for a claim."""
    if BIND_COMPLETED in annotations_of(claim):
        return _plan_bound(claim, inputs.named)
    if class_name(claim) is None and inputs.default_class:
        return ClaimPlan(storage_class=inputs.default_class)
    if claim.spec is not None and claim.spec.volumeName:
        return _plan_prebound(claim, inputs.named)
    delayed = is_delayed(inputs.storage_class)
    found = best(claim, inputs.candidates, reserved_only=delayed)
    if found is not None:
        return ClaimPlan(phase=BOUND, volume=found)
    if delayed and SELECTED_NODE not in annotations_of(claim):
        return ClaimPlan(event=_waiting_event(sorted(inputs.consumers)))
    return _plan_provisioning(claim, inputs.storage_class)


def _plan_bound(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    """Plan a bound claim: it keeps its volume, or is lost."""
    if not (claim.spec and claim.spec.volumeName):
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, event=Event("Warning", "ClaimLost", text))
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, event=Event("Warning", "ClaimLost", text))
    if claim_of(volume) is None or is_for(volume, claim):
        return ClaimPlan(phase=BOUND, volume=volume)
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return ClaimPlan(phase=LOST, event=Event("Warning", "ClaimMisbound", text))


def _plan_prebound(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    """Plan a claim that names a volume: bind that one, or wait for it."""
    if volume is None:
        return ClaimPlan()
    name = key_of(volume).name
    if is_for(volume, claim):
        return ClaimPlan(phase=BOUND, volume=volume)
    if claim_of(volume) is not None:
        text = f'volume "{name}" already bound to a different claim.'
        return ClaimPlan(event=Event("Warning", "FailedBinding", text))
    if reason := fault(claim, volume):
        text = f'Cannot bind to requested volume "{name}": {reason}'
        return ClaimPlan(event=Event("Warning", "VolumeMismatch", text))
    return ClaimPlan(phase=BOUND, volume=volume)


def _waiting_event(pods: list[str]) -> Event:
    if not pods:
        text = "waiting for first consumer to be created before binding"
        return Event("Normal", "WaitForFirstConsumer", text)
    noun = "pod" if len(pods) == 1 else "pods"
    text = f"waiting for {noun} {','.join(pods)} to be scheduled"
    return Event("Normal", "WaitForPodScheduled", text)


def _plan_provisioning(
    claim: PersistentVolumeClaim, storage_class: StorageClass | None
) -> ClaimPlan:
    """Plan a claim without a matching volume: let its class provision one."""
    name = class_name(claim)
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return ClaimPlan(event=Event("Normal", "FailedBinding", text))
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{name}" not found'
        return ClaimPlan(event=Event("Warning", "ProvisioningFailed", text))
    provisioner = storage_class.provisioner
    if provisioner.startswith(IN_TREE):
        text = f"no volume plugin matched name: {provisioner}"
        return ClaimPlan(event=Event("Warning", "ProvisioningFailed", text))
    text = (
        "Waiting for a volume to be created either by the external provisioner "
        f"'{provisioner}' or manually by the system administrator. If volume creation is delayed, "
        "please verify that the provisioner is running and correctly registered."
    )
    return ClaimPlan(
        annotations={OLD_PROVISIONER: provisioner, PROVISIONER: provisioner},
        event=Event("Normal", "ExternalProvisioning", text),
    )


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumePlan:
    """Return the plan for a volume; ``claim`` is the one that it refers to."""
    named = claim_of(volume)
    phase = (volume.status and volume.status.phase) or PENDING
    if named is None or not named.uid:
        return VolumePlan(phase=AVAILABLE)
    if claim is None or uid_of(claim) != named.uid:
        return _plan_released(volume, phase)
    volume_name = (claim.spec and claim.spec.volumeName) or ""
    if not volume_name:
        return VolumePlan(phase=phase)
    if volume_name == key_of(volume).name:
        return VolumePlan(phase=BOUND)
    if PROVISIONED_BY in annotations_of(volume) and _policy(volume) == DELETE:
        return _plan_released(volume, phase)  # provisioned twice for one claim: this one is surplus
    return VolumePlan(phase=AVAILABLE, unbind=True)


def _plan_released(volume: PersistentVolume, phase: str) -> VolumePlan:
    """Plan a released volume: its provisioner deletes it; without one, deletion fails."""
    if phase == FAILED:
        return VolumePlan(phase=FAILED)
    name, policy = key_of(volume).name, _policy(volume)
    if policy == RECYCLE:
        text = "No recycler plugin found for the volume!"
        return VolumePlan(phase=FAILED, event=Event("Warning", "VolumeFailedRecycle", text))
    if policy == DELETE and PROVISIONED_BY not in annotations_of(volume):
        text = (
            f'error getting deleter volume plugin for volume "{name}": '
            "no deletable volume plugin matched"
        )
        return VolumePlan(phase=FAILED, event=Event("Warning", "VolumeFailedDelete", text))
    return VolumePlan(phase=RELEASED)


def _policy(volume: PersistentVolume) -> str:
    return (volume.spec and volume.spec.persistentVolumeReclaimPolicy) or ""


# ------------------------------------------------------------------- patches


def unreserve(volume: PersistentVolume) -> Document:
    """Return the patch that removes the claimRef; one that a user wrote keeps its name."""
    metadata: Document = {"resourceVersion": version_of(volume)}
    if BOUND_BY_CONTROLLER not in annotations_of(volume):
        reference: Document = {"uid": None, "resourceVersion": None}
        return {"metadata": metadata, "spec": {"claimRef": reference}}
    metadata["annotations"] = {BOUND_BY_CONTROLLER: None}
    return {"metadata": metadata, "spec": {"claimRef": None}}


def volume_status(
    volume: PersistentVolume, phase: str, now: datetime, message: str = ""
) -> Document | None:
    """Return the patch of a volume's phase; None if it is unchanged."""
    status = volume.status
    if status is not None and (status.phase, status.message or "") == (phase, message):
        return None
    fields = {
        "phase": phase,
        "message": message or None,
        "lastPhaseTransitionTime": rfc3339(now),
    }
    return {"metadata": {"resourceVersion": version_of(volume)}, "status": fields}


def claim_patch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Document | None:
    """Return the patch that binds a claim to its volume; None if it is bound."""
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
    """Return the patch of a claim's phase and capacity; None if they are unchanged.

    The capacity of a bound claim stays: expansion sets it, not the volume.
    """
    old = claim.status
    fields: Document = {}
    if old is None or old.phase != phase:
        fields["phase"] = phase
    modes = list((volume.spec and volume.spec.accessModes) or ()) if volume is not None else None
    if (old and old.accessModes) != modes:
        fields["accessModes"] = modes
    if volume is None:
        if old is not None and old.capacity:
            fields["capacity"] = None
    elif "phase" in fields:
        fields["capacity"] = {STORAGE: str(capacity(volume))}
    if not fields:
        return None
    return {"metadata": {"resourceVersion": version_of(claim)}, "status": fields}
