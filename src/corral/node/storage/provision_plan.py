"""Decisions of the provisioner: which volumes to create, resize and delete.  No I/O.

The rules are those of Kubernetes' external-provisioner and external-resizer.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.conditions import remove_condition, set_condition
from corral.api.kinds.storage.common import (
    BOUND,
    CORRAL_PROVISIONER,
    DELETE,
    FILESYSTEM,
    MANY_NODES,
    OVERCOMMIT,
    PROVISIONED_BY,
    PROVISIONER,
    RELEASED,
    SELECTED_NODE,
    STORAGE,
    STORAGE_LABEL,
    WAIT_FOR_FIRST_CONSUMER,
    class_name,
)
from corral.api.object import Document
from corral.api.quantity import bytes_of
from corral.api.volume_binding import storage_of
from corral.reconcile.objects import (
    annotations_of,
    finalizers_of,
    is_being_deleted,
    key_of,
    object_reference,
    uid_of,
)

DRIVER = "corral.dev"
"""CSI driver name in a PersistentVolume's ``spec.csi``."""
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
"""Keeps a PersistentVolume in the API until its files are removed."""
CLAIM_KIND = "PersistentVolumeClaim"
RESIZE_PENDING = "FileSystemResizePending"
"""Condition of a claim whose volume has its new capacity, which a node has still to use."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A storage as the API names it.

    storage: its id, the value of a label of the Nodes that reach it; provisioner: the name of the
    provisioner in its StorageClasses.
    """

    storage: str
    label: str = STORAGE_LABEL
    provisioner: str = CORRAL_PROVISIONER


class ProvisionError(Exception):
    """A claim's request cannot be met, at least not now; ``str()`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionRequest:
    """A volume to create.

    shareable: whether several machines may write it at the same time.
    source: name of the claim to clone, in the same namespace; may be empty.
    """

    handle: str
    capacity_bytes: int
    volume_mode: str
    overcommit_percent: int
    shareable: bool = False
    source: str = ""


def handle_of(claim: PersistentVolumeClaim) -> str:
    """Return the handle of a claim's volume, which is the PersistentVolume's name too."""
    return f"pvc-{uid_of(claim)}"


def provision_request(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass | None,
    provisioner: str = CORRAL_PROVISIONER,
) -> ProvisionRequest | None:
    """Return the volume to create for a claim; None if it needs none from this provisioner.

    Raises ProvisionError.
    """
    spec = claim.spec
    annotations = annotations_of(claim)
    if spec is None or storage_class is None or storage_class.provisioner != provisioner:
        return None
    if spec.volumeName or is_being_deleted(claim) or annotations.get(PROVISIONER) != provisioner:
        return None
    waits_for_pod = storage_class.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER
    if waits_for_pod and not annotations.get(SELECTED_NODE):
        return None
    if spec.selector is not None:
        raise ProvisionError("claim Selector is not supported")
    return ProvisionRequest(
        handle=handle_of(claim),
        capacity_bytes=requested_bytes(claim),
        volume_mode=spec.volumeMode or FILESYSTEM,
        overcommit_percent=overcommit(storage_class),
        shareable=MANY_NODES in (spec.accessModes or ()),
        source=_source(claim),
    )


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    resources = claim.spec and claim.spec.resources
    return bytes_of(str(((resources and resources.requests) or {}).get(STORAGE, "0")))


def overcommit(storage_class: StorageClass | None) -> int:
    """Return the overcommit percentage of a StorageClass.  Raises ProvisionError."""
    text = str(((storage_class and storage_class.parameters) or {}).get(OVERCOMMIT, "0"))
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise ProvisionError(f"parameter {OVERCOMMIT} of the StorageClass is not a number: {text}")
    return int(text)


def _source(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim to clone.  Raises ProvisionError for other data sources."""
    assert claim.spec is not None
    source: Any = claim.spec.dataSourceRef or claim.spec.dataSource
    if source is None:
        return ""
    if source.kind != CLAIM_KIND or source.apiGroup:
        raise ProvisionError(f"a {source.kind} cannot be the source of a volume; use a DataVolume")
    namespace = getattr(source, "namespace", None)
    if namespace and namespace != key_of(claim).namespace:
        raise ProvisionError("a claim of another namespace cannot be the source; use a DataVolume")
    return str(source.name)


def volume_document(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    capacity_bytes: int,
    backend: Backend,
) -> Document:
    """Return the PersistentVolume for a claim's new volume."""
    assert claim.spec is not None
    affinity = {"key": backend.label, "operator": "In", "values": [backend.storage]}
    handle = handle_of(claim)
    spec: Document = {
        "capacity": {STORAGE: capacity_text(claim, capacity_bytes)},
        "accessModes": list(claim.spec.accessModes or ()),
        "volumeMode": claim.spec.volumeMode or FILESYSTEM,
        "storageClassName": class_name(claim),
        "persistentVolumeReclaimPolicy": storage_class.reclaimPolicy or DELETE,
        "claimRef": object_reference(claim),
        "csi": {"driver": DRIVER, "volumeHandle": handle},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [affinity]}]}},
    }
    if storage_class.mountOptions:
        spec["mountOptions"] = list(storage_class.mountOptions)
    metadata = {
        "name": handle,
        "annotations": {PROVISIONED_BY: backend.provisioner},
        "finalizers": [FINALIZER],
    }
    return {"metadata": metadata, "spec": spec}


def capacity_text(claim: PersistentVolumeClaim, capacity_bytes: int) -> str:
    """Return a size as a quantity, in the claim's own notation if it is what was requested."""
    resources = claim.spec and claim.spec.resources
    text = str(((resources and resources.requests) or {}).get(STORAGE, "0"))
    return text if bytes_of(text) == capacity_bytes else str(capacity_bytes)


def handle_in(volume: PersistentVolume, storage_id: str) -> str:
    """Return the handle of a PersistentVolume in this storage; empty for others."""
    csi = volume.spec.csi if volume.spec is not None else None
    if csi is None or csi.driver != DRIVER or storage_of(volume) not in ("", storage_id):
        return ""
    return csi.volumeHandle


def is_to_be_deleted(volume: PersistentVolume, provisioner: str = CORRAL_PROVISIONER) -> bool:
    """Report whether to delete a volume: provisioned here, released, reclaim policy Delete."""
    phase = (volume.status and volume.status.phase) or ""
    return (
        annotations_of(volume).get(PROVISIONED_BY) == provisioner
        and (volume.spec and volume.spec.persistentVolumeReclaimPolicy) == DELETE
        and (phase == RELEASED or (is_being_deleted(volume) and phase != BOUND))
    )


def awaits_finalizer(volume: PersistentVolume) -> bool:
    """Report whether a volume is being deleted and has this provisioner's finalizer."""
    return is_being_deleted(volume) and FINALIZER in finalizers_of(volume)


def is_retained(volume: PersistentVolume) -> bool:
    """Report whether a volume's files outlive its PersistentVolume."""
    return (volume.spec and volume.spec.persistentVolumeReclaimPolicy) != DELETE


def expansion(claim: PersistentVolumeClaim, volume: PersistentVolume) -> int:
    """Return the size in bytes to grow a claim's volume to; 0 if both objects show it already."""
    status = claim.status
    if status is None or status.phase != BOUND or is_being_deleted(claim):
        return 0
    claim_bytes = bytes_of(str((status.capacity or {}).get(STORAGE, "0")))
    requested = requested_bytes(claim)
    return requested if min(claim_bytes, capacity_bytes(volume)) < requested else 0


def capacity_bytes(volume: PersistentVolume) -> int:
    return bytes_of(str(((volume.spec and volume.spec.capacity) or {}).get(STORAGE, "0")))


def is_pending_on_node(claim: PersistentVolumeClaim) -> bool:
    """Report whether the node of a claim's machine has to grow its disk."""
    conditions = (claim.status and claim.status.conditions) or ()
    return any(each.type == RESIZE_PENDING and each.status == "True" for each in conditions)


def pending_status(claim: PersistentVolumeClaim, now: str) -> Document:
    """Return the patch of a claim's status that leaves its resize to a node."""
    message = "Waiting for the node of the machine that has the disk to resize it."
    changed = set_condition(_conditions(claim), RESIZE_PENDING, "True", message=message, now=now)
    return {"status": {"conditions": changed}}


def grown_status(claim: PersistentVolumeClaim, capacity_bytes: int) -> Document:
    """Return the patch of a claim's status once its disk has grown."""
    return {
        "status": {
            "capacity": {STORAGE: capacity_text(claim, capacity_bytes)},
            "conditions": remove_condition(_conditions(claim), RESIZE_PENDING),
        }
    }


def _conditions(claim: PersistentVolumeClaim) -> list[Document]:
    conditions = (claim.status and claim.status.conditions) or ()
    return [msgspec.to_builtins(each) for each in conditions]
