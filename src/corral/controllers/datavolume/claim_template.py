"""The PersistentVolumeClaim of a DataVolume. Pure.

Labels and annotations are CDI's. The storage class supplies what ``spec.storage`` leaves out; no
file system overhead is added to the size, since corral's disks need none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi import permitted_clones, population
from corral.api.kinds.cdi.datavolume import SIZE, DataVolume, Source, requested_size
from corral.api.kinds.cdi.datavolume_validation import KUBEVIRT
from corral.api.kinds.storage.common import CORRAL_PROVISIONER, FILESYSTEM, ONE_NODE, default_class
from corral.api.object import Document, Quantity
from corral.reconcile.objects import owner_reference

_LABELS = {
    "app": "containerized-data-importer",
    "app.kubernetes.io/component": "storage",
    "app.kubernetes.io/managed-by": "cdi-controller",
}
_NOT_FULL = {"alerts.k8s.io/KubePersistentVolumeFillingUp": "disabled"}
"""A disk image always fills its file system: monitoring must not alert."""
_CONTENT_TYPE = "cdi.kubevirt.io/storage.contentType"
_PREALLOCATION = "cdi.kubevirt.io/storage.preallocation.requested"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        permitted_clones.PERMITTED,
        population.POPULATE,
        population.PHASE,
        population.PROGRESS,
        population.REASON,
        population.MESSAGE,
        population.RUNNING_CONDITION,
        population.READY,
        population.UPLOAD_TARGET,
        population.POPULATED_FOR,
    }
)
"""Annotations of a DataVolume that would have another meaning on its claim."""


class ClaimError(Exception):
    """The DataVolume lacks a field that the claim needs; the message is CDI's."""


def document(
    volume: DataVolume,
    source: Source,
    classes: Sequence[StorageClass],
    size_of_source: Quantity | None,
) -> Document:
    """Return the claim to create; ``size_of_source`` is that of the claim to clone.

    Raises ClaimError.
    """
    spec = _spec(volume, classes, size_of_source)
    labels = _LABELS | (_NOT_FULL if spec.get("volumeMode") in (None, FILESYSTEM) else {})
    options = population.PopulateRequest(
        source=source,
        content_type=volume.spec.content_type or KUBEVIRT,
        preallocation=bool(volume.spec.preallocation),
    )
    return {
        "metadata": {
            "name": volume.metadata.name,
            "namespace": volume.metadata.namespace,
            "labels": labels | volume.metadata.labels,
            "annotations": _annotations(volume.metadata.annotations, options),
            "ownerReferences": [owner_reference(volume)],
        },
        "spec": spec,
    }


def _annotations(
    user_annotations: Mapping[str, str], options: population.PopulateRequest
) -> dict[str, str]:
    kept = {name: value for name, value in user_annotations.items() if name not in _NOT_COPIED}
    own_values = {
        population.RESTARTS: "0",
        _CONTENT_TYPE: options.content_type,
        _PREALLOCATION: str(options.preallocation).lower(),
    }
    if options.source.upload is not None:
        own_values[population.UPLOAD_TARGET] = ""
    return kept | own_values | population.annotations(options)


def _spec(
    volume: DataVolume, classes: Sequence[StorageClass], size_of_source: Quantity | None
) -> dict[str, Any]:
    if volume.spec.pvc is not None:
        plain: dict[str, Any] = msgspec.to_builtins(volume.spec.pvc)
        return {name: value for name, value in plain.items() if value is not None}
    storage = volume.spec.storage
    if storage is None:
        raise ClaimError("Missing Data volume PVC")
    spec: dict[str, Any] = msgspec.to_builtins(storage)
    if not spec.get("accessModes"):
        spec["accessModes"] = [_access_mode(storage.storage_class_name, classes)]
    if requested_size(storage.resources) is None:
        if size_of_source is None:
            raise ClaimError("Storage size is missing")
        spec["resources"] = {"requests": {SIZE: size_of_source}}
    return spec


def _access_mode(name: str | None, classes: Sequence[StorageClass]) -> str:
    """Return an access mode that the class supports; CDI has StorageProfiles for that."""
    found = class_of(name, classes)
    if found is None:
        which = f'storage class "{name}" was not found' if name else "there is no default class"
        raise ClaimError(
            "DataVolume.storage spec is missing accessMode and cannot get it from the storage "
            f"class: {which}"
        )
    if found.provisioner != CORRAL_PROVISIONER:
        raise ClaimError(
            "DataVolume.storage spec is missing accessMode, which is not known of storage class "
            f'"{found.metadata and found.metadata.name}": name it in spec.storage.accessModes'
        )
    return ONE_NODE


def class_of(name: str | None, classes: Sequence[StorageClass]) -> StorageClass | None:
    """Return the storage class of a claim that names it, or the default class for None."""
    if name is None:
        return default_class(classes)
    return next((each for each in classes if each.metadata and each.metadata.name == name), None)


def size(claim: PersistentVolumeClaim) -> Quantity | None:
    """Return the size of a claim: its capacity, else its request."""
    capacity = (claim.status and claim.status.capacity) or {}
    return capacity.get(SIZE) or requested_size(claim.spec.resources if claim.spec else None)
