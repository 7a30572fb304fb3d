"""Dynamic resource allocation: DeviceClass, ResourceClaim, ResourceSlice (resource.k8s.io)."""

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
    """Return the state of a claim, as Kubernetes prints it."""
    status = document.get("status") or {}
    words = []
    if document["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    if not status.get("allocation"):
        return ",".join((*words, "pending"))
    words.append("allocated")
    return ",".join((*words, "reserved") if status.get("reservedFor") else words)


def _check_slice(document: Document) -> Iterator[Cause]:
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
        Column(name="State", cell=_state, description="state of the claim"),
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
        field("Node", "spec", "nodeName", description="the node of the devices"),
        field("Driver", "spec", "driver", description="their driver"),
        field("Pool", "spec", "pool", "name", description="their pool"),
        age(),
        why=_WHY,
        causes=_check_slice,
    ),
)
