"""Constants, columns and checks that PVCs, PVs and storage classes share.  No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import Cause
from corral.api.kind import Column, at
from corral.api.kinds.causes import invalid, unsupported
from corral.api.object import Document
from corral.api.quantity import ZERO, amount

STORAGE = "storage"
"""The resource that is the size of PVCs and PVs."""

FILESYSTEM, BLOCK = "Filesystem", "Block"
VOLUME_MODES = (BLOCK, FILESYSTEM)

ONE_NODE, MANY_READ, MANY_NODES, ONE_POD = (
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
)
ACCESS_MODES: Mapping[str, str] = {
    ONE_NODE: "RWO",
    MANY_READ: "ROX",
    MANY_NODES: "RWX",
    ONE_POD: "RWOP",
}
"""Access modes and their abbreviations in tables, in the order of tables."""

PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
"""Phases of PVCs; Pending and Bound are also phases of PVs."""
AVAILABLE, RELEASED, FAILED = "Available", "Released", "Failed"
"""The other phases of PVs."""

RETAIN, DELETE, RECYCLE = "Retain", "Delete", "Recycle"
RECLAIM_POLICIES = (DELETE, RECYCLE, RETAIN)
"""Reclaim policies: the fate of a PV whose PVC was deleted."""

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
"""Finalizers of PVCs and PVs that are in use."""

OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation of the class, from before there was a field for it; it still takes precedence."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OLD_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
"""Annotations of the default class."""
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
OLD_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
"""Annotations of a PVC: the provisioner of its PV."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a PVC: the node of its first consumer."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
"""Annotation of a PV: the provisioner that created it, and deletes it."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a PVC that was bound: it is lost if its PV no longer exists."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a PVC or PV that was bound by the controller, not by a user."""

IN_TREE = "kubernetes.io/"
"""Prefix of Kubernetes' in-tree provisioners, none of which is implemented."""

CORRAL_CLASS = "corral"
"""The built-in storage class: volumes are provisioned at once."""
WAITING_CLASS = "corral-wait"
"""The built-in class of many hosts: volumes are provisioned on the node of the first pod."""
CORRAL_PROVISIONER = "corral.dev/directory"
"""The provisioner of that class: directories below the data directory."""

SHARED_CLASS = "corral-shared"
"""The built-in class of a directory that several hosts mount."""
SHARED_PROVISIONER = "corral.dev/shared-directory"
"""The provisioner of that class."""

OVERCOMMIT = "overcommitPercent"
"""Parameter of a StorageClass: percent by which provisioned space may exceed free space."""

STORAGE_LABEL = "corral.dev/storage"
"""Label of a Node: the id of the storage of its host, whose PVs are used there only."""
STORAGE_CAPACITY = "corral.dev/storage-capacity"
"""Annotation of a Node: bytes that its host has left for new PVs (``CSIStorageCapacity``'s)."""

SHARED_LABEL = "corral.dev/shared-storage"
"""Label of a Node: the id of the shared directory that its host mounts, whose PVs it can use."""
SHARED_CAPACITY = "corral.dev/shared-storage-capacity"
"""Annotation of a Node: bytes that the shared directory has left, as its provisioner's host says.
"""
SHARED_CONDITION = "SharedStorage"
"""Condition of a Node that is to mount a shared directory: whether it can use it."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def takes_space(storage_class: StorageClass, provisioner: str = CORRAL_PROVISIONER) -> bool:
    """Return whether the volumes of a class take their size from a storage at once.

    provisioner: that of the storage, by default of a host's own.
    """
    is_own = storage_class.provisioner == provisioner
    return is_own and OVERCOMMIT not in (storage_class.parameters or {})


def is_default(annotations: Mapping[str, str] | None) -> bool:
    """Return whether the class with these annotations is the default class."""
    values = annotations or {}
    return "true" in (values.get(DEFAULT_CLASS), values.get(OLD_DEFAULT_CLASS))


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class: of several the newest, as Kubernetes chooses."""
    candidates = [
        (each.metadata.creationTimestamp or _EARLIEST, each.metadata.name or "", each)
        for each in classes
        if each.metadata is not None and is_default(each.metadata.annotations)
    ]
    candidates.sort(key=lambda one: one[1])
    return max(candidates, key=lambda one: one[0])[2] if candidates else None


def class_of(document: Document) -> str | None:
    """Return the class of a PVC or PV: empty for none, None if it is not set."""
    annotations = at(document, "metadata", "annotations") or {}
    named: str | None = annotations.get(OLD_CLASS)
    return at(document, "spec", "storageClassName") if named is None else named


CLASS_COLUMNS = (
    Column(
        name="StorageClass",
        cell=lambda document: class_of(document) or "",
        description="its class",
    ),
    Column(
        name="VolumeAttributesClass",
        cell=lambda document: at(document, "spec", "volumeAttributesClassName") or "<unset>",
        description="its class of attributes",
    ),
)
"""The columns of the classes of a PVC or PV."""
MODE_COLUMN = Column(
    name="VolumeMode",
    cell=lambda document: at(document, "spec", "volumeMode") or "<unset>",
    priority=1,
    description="file system or block device",
)


def class_name(view: PersistentVolumeClaim | PersistentVolume) -> str | None:
    """Return the class of a PVC or PV: empty for none, None if it is not set."""
    named: str | None = ((view.metadata and view.metadata.annotations) or {}).get(OLD_CLASS)
    if named is not None or view.spec is None:
        return named
    return view.spec.storageClassName


def abbreviated(modes: Iterable[str]) -> str:
    """Return access modes as in tables: ``RWO,ROX``."""
    listed = set(modes)
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in listed)


def size_causes(path: str, quantity: Any) -> Iterator[Cause]:
    """Check that a size is greater than zero."""
    size = amount(quantity)
    if size < ZERO:
        yield invalid(path, quantity, "must be greater than or equal to 0")
    if size <= ZERO:
        yield invalid(path, quantity, "must be greater than zero")


def mode_causes(path: str, modes: Iterable[str]) -> Iterator[Cause]:
    """Check access modes."""
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(path, mode, ACCESS_MODES)


def volume_mode_causes(path: str, mode: str | None) -> Iterator[Cause]:
    """Check a volume mode."""
    if mode is not None and mode not in VOLUME_MODES:
        yield unsupported(path, mode, VOLUME_MODES)


def differences(old: Document, new: Document) -> str:
    """Return the differing fields of two specs, one per line, for an error message."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines += [f"- {name}: {_field_text(old, name)}", f"+ {name}: {_field_text(new, name)}"]
    return "\n".join(lines)


def _field_text(spec: Document, name: str) -> str:
    return msgspec.json.encode(spec[name]).decode() if name in spec else "<unset>"
