"""CSI drivers and nodes, VolumeAttachment and VolumeAttributesClass (storage.k8s.io)."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    VolumeAttachment,
    VolumeAttributesClass,
)

from corral.api.errors import Cause
from corral.api.kind import Column, at
from corral.api.kinds.causes import required
from corral.api.kinds.columns import age, field, length
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = "storage.k8s.io/v1"
_WHY: Final = "corral makes volumes itself, without drivers"
_ABSENT: Final = "<unset>"


def _default_driver(document: Document) -> None:
    spec = document["spec"]
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    for name in ("podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"):
        spec.setdefault(name, False)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])


def _boolean_column(name: str, what: str, description: str) -> Column:
    return Column(
        name=name,
        type="boolean",
        cell=lambda document: str(bool(at(document, "spec", what))).lower(),
        description=description,
    )


def _tokens(document: Document) -> str:
    requests = at(document, "spec", "tokenRequests") or ()
    return ",".join(each.get("audience") or "" for each in requests) if requests else _ABSENT


def _check_class(document: Document) -> Iterator[Cause]:
    if not document["driverName"]:
        yield required("driverName")


def _check_capacity(document: Document) -> Iterator[Cause]:
    if not document["storageClassName"]:
        yield required("storageClassName")


KINDS = (
    unimplemented(
        CSIDriver,
        "csidrivers",
        _V1,
        _boolean_column(
            "AttachRequired", "attachRequired", "whether volumes are attached to nodes first"
        ),
        _boolean_column(
            "PodInfoOnMount", "podInfoOnMount", "whether the driver gets the pod's metadata"
        ),
        _boolean_column(
            "StorageCapacity", "storageCapacity", "whether the driver reports its capacity"
        ),
        Column(name="TokenRequests", cell=_tokens, description="audiences of the pods' tokens"),
        _boolean_column(
            "RequiresRepublish", "requiresRepublish", "whether volumes are mounted repeatedly"
        ),
        Column(
            name="Modes",
            cell=lambda document: ",".join(at(document, "spec", "volumeLifecycleModes") or ()),
            description="lifecycle modes of its volumes",
        ),
        age(),
        why=_WHY,
        default=_default_driver,
    ),
    unimplemented(
        CSINode,
        "csinodes",
        _V1,
        length("Drivers", "spec", "drivers", description="number of drivers"),
        age(),
        why=_WHY,
    ),
    unimplemented(
        CSIStorageCapacity,
        "csistoragecapacities",
        _V1,
        field("StorageClassName", "storageClassName", description="the class of the volumes"),
        field("Capacity", "capacity", description="available capacity"),
        why=_WHY,
        namespaced=True,
        causes=_check_capacity,
    ),
    unimplemented(
        VolumeAttachment,
        "volumeattachments",
        _V1,
        field("Attacher", "spec", "attacher", description="the driver that attaches"),
        field("PV", "spec", "source", "persistentVolumeName", description="the volume"),
        field("Node", "spec", "nodeName", description="the node"),
        Column(
            name="Attached",
            type="boolean",
            cell=lambda document: str(bool(at(document, "status", "attached"))).lower(),
            description="whether it is attached",
        ),
        age(),
        why=_WHY,
        status=True,
    ),
    unimplemented(
        VolumeAttributesClass,
        "volumeattributesclasses",
        _V1,
        field("DriverName", "driverName", description="the driver"),
        age(),
        why=_WHY,
        short=("vac",),
        causes=_check_class,
    ),
)
