"""Drivers of volumes (CSI), what they offer, and what they have attached (storage.k8s.io)."""

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


def _truth(name: str, what: str, description: str) -> Column:
    return Column(
        name=name,
        type="boolean",
        cell=lambda document: str(bool(at(document, "spec", what))).lower(),
        description=description,
    )


def _tokens(document: Document) -> str:
    asked = at(document, "spec", "tokenRequests") or ()
    return ",".join(each.get("audience") or "" for each in asked) if asked else _ABSENT


def _class_causes(document: Document) -> Iterator[Cause]:
    if not document["driverName"]:
        yield required("driverName")


def _capacity_causes(document: Document) -> Iterator[Cause]:
    if not document["storageClassName"]:
        yield required("storageClassName")


KINDS = (
    unimplemented(
        CSIDriver,
        "csidrivers",
        _V1,
        _truth("AttachRequired", "attachRequired", "whether volumes are attached to nodes first"),
        _truth("PodInfoOnMount", "podInfoOnMount", "whether the driver is told of pods"),
        _truth("StorageCapacity", "storageCapacity", "whether the driver tells of its capacity"),
        Column(name="TokenRequests", cell=_tokens, description="whom tokens of pods are for"),
        _truth("RequiresRepublish", "requiresRepublish", "whether volumes are mounted repeatedly"),
        Column(
            name="Modes",
            cell=lambda document: ",".join(at(document, "spec", "volumeLifecycleModes") or ()),
            description="how long its volumes last",
        ),
        age(),
        why=_WHY,
        default=_default_driver,
    ),
    unimplemented(
        CSINode,
        "csinodes",
        _V1,
        length("Drivers", "spec", "drivers", description="how many drivers the node has"),
        age(),
        why=_WHY,
    ),
    unimplemented(
        CSIStorageCapacity,
        "csistoragecapacities",
        _V1,
        field("StorageClassName", "storageClassName", description="the class of the volumes"),
        field("Capacity", "capacity", description="how much can be had"),
        why=_WHY,
        namespaced=True,
        causes=_capacity_causes,
    ),
    unimplemented(
        VolumeAttachment,
        "volumeattachments",
        _V1,
        field("Attacher", "spec", "attacher", description="the driver that attaches"),
        field("PV", "spec", "source", "persistentVolumeName", description="what is attached"),
        field("Node", "spec", "nodeName", description="where it is attached"),
        Column(
            name="Attached",
            type="boolean",
            cell=lambda document: str(bool(at(document, "status", "attached"))).lower(),
            description="whether it is",
        ),
        age(),
        why=_WHY,
        status=True,
    ),
    unimplemented(
        VolumeAttributesClass,
        "volumeattributesclasses",
        _V1,
        field("DriverName", "driverName", description="the driver that knows the attributes"),
        age(),
        why=_WHY,
        short=("vac",),
        causes=_class_causes,
    ),
)
