"""Devices that pods can claim (resource.k8s.io)."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.resource_v1 import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

from corral.api.errors import Cause
from corral.api.kind import Column
from corral.api.kinds.causes import required
from corral.api.kinds.columns import age, field
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = "resource.k8s.io/v1"
_WHY: Final = "corral gives no devices to claims"


def _state(document: Document) -> str:
    """How far a claim has come, as Kubernetes prints it."""
    status = document.get("status") or {}
    words = []
    if document["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    if not status.get("allocation"):
        return ",".join((*words, "pending"))
    words.append("allocated")
    return ",".join((*words, "reserved") if status.get("reservedFor") else words)


def _slice_causes(document: Document) -> Iterator[Cause]:
    spec = document["spec"]
    if not spec["driver"]:
        yield required("spec.driver")
    if not spec["pool"]["name"]:
        yield required("spec.pool.name")


KINDS = (
    unimplemented(DeviceClass, "deviceclasses", _V1, age(), why=_WHY),
    unimplemented(DeviceTaintRule, "devicetaintrules", _V1, age(), why=_WHY, status=True),
    unimplemented(
        ResourceClaim,
        "resourceclaims",
        _V1,
        Column(name="State", cell=_state, description="how far the claim has come"),
        age(),
        why=_WHY,
        namespaced=True,
        status=True,
    ),
    unimplemented(
        ResourceClaimTemplate, "resourceclaimtemplates", _V1, age(), why=_WHY, namespaced=True
    ),
    unimplemented(
        ResourceSlice,
        "resourceslices",
        _V1,
        field("Node", "spec", "nodeName", description="where the devices are"),
        field("Driver", "spec", "driver", description="who offers them"),
        field("Pool", "spec", "pool", "name", description="the pool that they are part of"),
        age(),
        why=_WHY,
        causes=_slice_causes,
    ),
)
