"""What is to become of a claim's volume, and of a volume whose claim is gone.  Pure.

The rules are those of Kubernetes' external provisioner and external resizer, as a driver of this
provisioner would be run by them.
"""

from dataclasses import dataclass
from typing import Any

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.storage.common import (
    BOUND,
    CORRAL_PROVISIONER,
    DELETE,
    FILESYSTEM,
    MANY_NODES,
    PROVISIONED_BY,
    PROVISIONER,
    RELEASED,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    class_name,
)
from corral.api.object import Document
from corral.api.quantity import bytes_of
from corral.reconcile.objects import (
    annotations_of,
    finalizers_of,
    is_being_deleted,
    key_of,
    object_reference,
    uid_of,
)

DRIVER = "corral.dev"
"""The name of the driver in a volume's ``spec.csi``."""
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
"""Keeps a volume in the API until its files are gone."""
STORAGE_LABEL = "corral.dev/storage"
"""Label of a node: the storage whose volumes can be used there."""
OVERCOMMIT = "overcommitPercent"
"""Parameter of a class: by how many percent what its volumes are promised may exceed what is free.
"""
CLAIM_KIND = "PersistentVolumeClaim"


class Refusal(Exception):
    """What a claim asks for is not to be had, at least not now; ``str()`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A volume that is to be made.

    shareable: whether several machines may write it at the same time.
    source: the claim that it is to be a clone of, if any, in the claim's namespace.
    """

    handle: str
    capacity_bytes: int
    volume_mode: str
    overcommit_percent: int
    shareable: bool = False
    source: str = ""


def handle_of(claim: PersistentVolumeClaim) -> str:
    """The handle of the volume that is made for a claim; it is also the volume's name."""
    return f"pvc-{uid_of(claim)}"


def order(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> Order | None:
    """The volume that a claim waits for from here; None where it does not.

    Raises Refusal.
    """
    spec = claim.spec
    told = annotations_of(claim)
    if spec is None or storage_class is None or storage_class.provisioner != CORRAL_PROVISIONER:
        return None
    if spec.volumeName or is_being_deleted(claim) or told.get(PROVISIONER) != CORRAL_PROVISIONER:
        return None
    if storage_class.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER and not told.get(SELECTED_NODE):
        return None
    if spec.selector is not None:
        raise Refusal("claim Selector is not supported")
    return Order(
        handle=handle_of(claim),
        capacity_bytes=requested(claim),
        volume_mode=spec.volumeMode or FILESYSTEM,
        overcommit_percent=overcommit(storage_class),
        shareable=MANY_NODES in (spec.accessModes or ()),
        source=_source(claim),
    )


def requested(claim: PersistentVolumeClaim) -> int:
    """The size that a claim asks for, in bytes."""
    resources = claim.spec and claim.spec.resources
    return bytes_of(str(((resources and resources.requests) or {}).get(STORAGE, "0")))


def overcommit(storage_class: StorageClass | None) -> int:
    """How many percent more than there is a class promises.  Raises Refusal."""
    text = str(((storage_class and storage_class.parameters) or {}).get(OVERCOMMIT, "0"))
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise Refusal(f"parameter {OVERCOMMIT} of the StorageClass is no number of percent: {text}")
    return int(text)


def _source(claim: PersistentVolumeClaim) -> str:
    """The claim whose content is wished for.  Raises Refusal for sources of other kinds."""
    assert claim.spec is not None
    source: Any = claim.spec.dataSourceRef or claim.spec.dataSource
    if source is None:
        return ""
    if source.kind != CLAIM_KIND or source.apiGroup:
        raise Refusal(f"a {source.kind} cannot be the source of a volume; use a DataVolume")
    namespace = getattr(source, "namespace", None)
    if namespace and namespace != key_of(claim).namespace:
        raise Refusal("a claim of another namespace cannot be the source; use a DataVolume")
    return str(source.name)


def volume_document(
    claim: PersistentVolumeClaim, storage_class: StorageClass, capacity_bytes: int, storage_id: str
) -> Document:
    """The PersistentVolume of a volume that was made for a claim."""
    assert claim.spec is not None
    affinity = {"key": STORAGE_LABEL, "operator": "In", "values": [storage_id]}
    handle = handle_of(claim)
    spec: Document = {
        "capacity": {STORAGE: shown_size(claim, capacity_bytes)},
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
        "annotations": {PROVISIONED_BY: CORRAL_PROVISIONER},
        "finalizers": [FINALIZER],
    }
    return {"metadata": metadata, "spec": spec}


def shown_size(claim: PersistentVolumeClaim, capacity_bytes: int) -> str:
    """A size in the claim's own words where it is exactly what was asked for."""
    resources = claim.spec and claim.spec.resources
    text = str(((resources and resources.requests) or {}).get(STORAGE, "0"))
    return text if bytes_of(text) == capacity_bytes else str(capacity_bytes)


def handle_in(volume: PersistentVolume, storage_id: str) -> str:
    """The handle of a volume that lies in this storage; empty for others."""
    csi = volume.spec.csi if volume.spec is not None else None
    if csi is None or csi.driver != DRIVER:
        return ""
    affinity = volume.spec and volume.spec.nodeAffinity
    terms = (affinity and affinity.required and affinity.required.nodeSelectorTerms) or ()
    for term in terms:
        for expression in term.matchExpressions or ():
            if expression.key == STORAGE_LABEL and storage_id not in (expression.values or ()):
                return ""
    return csi.volumeHandle


def is_to_be_deleted(volume: PersistentVolume) -> bool:
    """Whether a volume's files are to go: it was made here, nobody has it, and it is not kept."""
    phase = (volume.status and volume.status.phase) or ""
    return (
        annotations_of(volume).get(PROVISIONED_BY) == CORRAL_PROVISIONER
        and (volume.spec and volume.spec.persistentVolumeReclaimPolicy) == DELETE
        and (phase == RELEASED or (is_being_deleted(volume) and phase != BOUND))
    )


def holds(volume: PersistentVolume) -> bool:
    """Whether a volume that goes waits for nothing but this provisioner's word."""
    return is_being_deleted(volume) and FINALIZER in finalizers_of(volume)


def is_kept(volume: PersistentVolume) -> bool:
    """Whether a volume's files stay when the volume goes."""
    return (volume.spec and volume.spec.persistentVolumeReclaimPolicy) != DELETE


def growth(claim: PersistentVolumeClaim, volume: PersistentVolume) -> int:
    """The size in bytes that a claim's volume is to grow to; 0 where it has it, and says so."""
    status = claim.status
    if status is None or status.phase != BOUND or is_being_deleted(claim):
        return 0
    told = bytes_of(str((status.capacity or {}).get(STORAGE, "0")))
    has = bytes_of(str(((volume.spec and volume.spec.capacity) or {}).get(STORAGE, "0")))
    wanted = requested(claim)
    return wanted if min(told, has) < wanted else 0
