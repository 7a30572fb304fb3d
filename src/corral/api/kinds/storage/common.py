"""What claims, volumes and storage classes have in common: words of Kubernetes' storage.  Pure."""

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
from corral.api.quantity import NOTHING, amount

STORAGE = "storage"
"""The resource of claims and volumes that is their size."""

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
"""Who may use a volume at the same time, and how tables abbreviate that, in their order."""

PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
"""Phases of claims; Pending and Bound are also phases of volumes."""
AVAILABLE, RELEASED, FAILED = "Available", "Released", "Failed"
"""The other phases of volumes."""

RETAIN, DELETE, RECYCLE = "Retain", "Delete", "Recycle"
RECLAIM_POLICIES = (DELETE, RECYCLE, RETAIN)
"""What becomes of a volume whose claim is gone."""

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
"""Finalizers that keep claims and volumes which are in use."""

OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation that named the class before there was a field for it; it still goes first."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OLD_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
"""Annotations with which a class is the one of claims that name none."""
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
OLD_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
"""Annotations of a claim: who is to make its volume."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node from which its volume will be used first."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
"""Annotation of a volume: who made it, and deletes it."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim that has had its volume: when that is gone, the claim is lost."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a claim or volume whose partner was found, not named by a user."""

IN_TREE = "kubernetes.io/"
"""Provisioners of this prefix are a part of Kubernetes itself, and corral has none of them."""

CORRAL_CLASS = "corral"
"""The storage class that is there from the start."""
CORRAL_PROVISIONER = "corral.dev/directory"
"""Who makes the volumes of that class: the storage of the data directory."""


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def is_default(annotations: Mapping[str, str] | None) -> bool:
    """Whether claims that name no class get the class with these annotations."""
    told = annotations or {}
    return "true" in (told.get(DEFAULT_CLASS), told.get(OLD_DEFAULT_CLASS))


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: of several the newest, as Kubernetes chooses."""
    several = [
        (each.metadata.creationTimestamp or _LONG_AGO, each.metadata.name or "", each)
        for each in classes
        if each.metadata is not None and is_default(each.metadata.annotations)
    ]
    several.sort(key=lambda one: one[1])
    return max(several, key=lambda one: one[0])[2] if several else None


def class_of(document: Document) -> str | None:
    """The class of a claim or volume: empty for none, None where nothing is said."""
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
"""What tables show of the class of a claim, or of a volume."""
MODE_COLUMN = Column(
    name="VolumeMode",
    cell=lambda document: at(document, "spec", "volumeMode") or "<unset>",
    priority=1,
    description="file system or block device",
)


def class_name(view: PersistentVolumeClaim | PersistentVolume) -> str | None:
    """The class of a claim or volume: empty for none, None where nothing is said."""
    named: str | None = ((view.metadata and view.metadata.annotations) or {}).get(OLD_CLASS)
    if named is not None or view.spec is None:
        return named
    return view.spec.storageClassName


def abbreviated(modes: Iterable[str]) -> str:
    """Access modes as tables show them: ``RWO,ROX``."""
    listed = set(modes)
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in listed)


def size_causes(path: str, quantity: Any) -> Iterator[Cause]:
    """A size is more than nothing."""
    size = amount(quantity)
    if size < NOTHING:
        yield invalid(path, quantity, "must be greater than or equal to 0")
    if size <= NOTHING:
        yield invalid(path, quantity, "must be greater than zero")


def mode_causes(path: str, modes: Iterable[str]) -> Iterator[Cause]:
    """Access modes are known ones."""
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(path, mode, ACCESS_MODES)


def volume_mode_causes(path: str, mode: str | None) -> Iterator[Cause]:
    """A volume is a file system or a block device."""
    if mode is not None and mode not in VOLUME_MODES:
        yield unsupported(path, mode, VOLUME_MODES)


def differences(old: Document, new: Document) -> str:
    """The fields in which two specs differ, a line each, to stand below a refusal."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines += [f"- {name}: {_shown(old, name)}", f"+ {name}: {_shown(new, name)}"]
    return "\n".join(lines)


def _shown(spec: Document, name: str) -> str:
    return msgspec.json.encode(spec[name]).decode() if name in spec else "<unset>"
