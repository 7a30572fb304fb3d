"""Resizes the launcher pod of a VMI whose sockets or memory have changed, before its node does so.

The pod requests first what its machine shall have: quotas and the scheduler count it, and a node
that lacks it is found out before the guest has it.  Then the VMI gets the conditions HotVCPUChange
and HotMemoryChange, and ``status.memory.guestRequested``, on which its node acts.  KubeVirt
migrates the VMI into a larger pod instead; here only one whose node has no room is to migrate
(``MigrationRequired``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from lightkube.models.core_v1 import Node, Pod

from corral.api import node_fit
from corral.api.conditions import remove_condition, set_condition
from corral.api.kinds.vmi.derived import COMPUTE, guest_memory
from corral.api.kinds.vmi.live_update import (
    MEMORY_CHANGE,
    MIGRATION_REQUIRED,
    VCPU_CHANGE,
    current_memory,
    has_condition,
    max_memory_bytes,
    requested_guest,
    sockets_differ,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Quantity
from corral.api.quantity import amount
from corral.api.time import rfc3339
from corral.api.volume_binding import is_finished, node_of
from corral.reconcile.objects import is_being_deleted

RESIZE_FAILED: Final = "PodResizeFailed"
NO_ROOM: Final = "NodeHasNoRoom"

Resources = Mapping[str, Mapping[str, Quantity]]


@dataclass(frozen=True, slots=True)
class Change:
    """The parts of a VMI that its machine does not have yet."""

    sockets: bool
    memory: bool

    def __bool__(self) -> bool:
        return self.sockets or self.memory

    @property
    def conditions(self) -> list[str]:
        """The types of its conditions."""
        return [VCPU_CHANGE] * self.sockets + [MEMORY_CHANGE] * self.memory


def change_of(vmi: VirtualMachineInstance) -> Change:
    """Return what is to be plugged into a VMI; nothing while it does not run, or migrates."""
    if not _is_steady(vmi):
        return Change(sockets=False, memory=False)
    domain = vmi.spec.domain
    memory = max_memory_bytes(domain) > 0 and guest_memory(domain) != requested_guest(vmi)
    sockets = sockets_differ(vmi) and not has_condition(vmi, VCPU_CHANGE)
    return Change(sockets=sockets, memory=memory)


def _is_steady(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI runs, and neither ends nor migrates."""
    return vmi.status.phase == "Running" and not is_being_deleted(vmi) and not vmi.is_migrating


def may_have_released(vmi: VirtualMachineInstance) -> bool:
    """Report whether a guest has no more memory than it is to have, but may have had."""
    domain = vmi.spec.domain
    guest = guest_memory(domain)
    return (
        _is_steady(vmi)
        and max_memory_bytes(domain) > 0
        and guest == requested_guest(vmi)
        and current_memory(vmi) <= guest
    )


def releasable(vmi: VirtualMachineInstance, pod: Pod, desired: Resources) -> Resources | None:
    """Return the resources of a pod whose guest has released memory; None if it has not."""
    if not may_have_released(vmi):
        return None
    present = _compute(pod)
    has, least = (
        _amounts(each.get("requests", {})).get("memory", 0) for each in (present, desired)
    )
    if has <= least:
        return None
    return {part: _memory_of(desired, part) for part in desired if _memory_of(desired, part)}


def without_release(vmi: VirtualMachineInstance, pod: Pod, desired: Resources) -> Resources:
    """Return the desired resources, with the memory that a pod has until its guest releases it.

    A lower limit would end the machine.
    """
    if current_memory(vmi) <= guest_memory(vmi.spec.domain):
        return desired
    present, kept = _compute(pod), {part: dict(values) for part, values in desired.items()}
    for part, values in kept.items():
        has = present.get(part, {}).get("memory")
        if has is not None and amount(has) > amount(values.get("memory")):
            values["memory"] = has
    return kept


def _memory_of(resources: Resources, part: str) -> dict[str, Quantity]:
    return {name: value for name, value in resources[part].items() if name == "memory"}


def resized(pod: Pod, desired: Resources) -> list[Document] | None:
    """Return the JSON patch of ``pods/resize`` by which the pod requests more; None if it does.

    Limits that a LimitRange has set stay.
    """
    present = _compute(pod)
    merged = {part: {**present.get(part, {}), **desired.get(part, {})} for part in desired}
    if all(_amounts(merged[part]) == _amounts(present.get(part, {})) for part in merged):
        return None
    assert pod.spec is not None
    index = [each.name for each in pod.spec.containers].index(COMPUTE)
    path = f"/spec/containers/{index}"
    return [
        {"op": "test", "path": f"{path}/name", "value": COMPUTE},
        {"op": "add", "path": f"{path}/resources", "value": merged},
    ]


def lacking(
    pod: Pod, desired: Resources, node: Node | None, pods: Iterable[Pod], name: str
) -> list[str]:
    """Return the resources that the pod's node lacks: ``pods`` has those of all nodes."""
    if node is None:
        return []
    used: Counter[str] = Counter()
    for each in pods:
        if node_of(each) == name and not is_finished(each):
            used.update(node_fit.requests(each))
    before, after = _amounts(_compute(pod).get("requests", {})), _amounts(desired["requests"])
    return [
        resource
        for resource, size in after.items()
        if size > before.get(resource, 0)
        and used[resource] + size - before.get(resource, 0) > node_fit.allocatable(node, resource)
    ]


def granted(vmi: VirtualMachineInstance, change: Change, now: datetime) -> Document:
    """Return the patch of a VMI whose pod has what its machine shall have."""
    conditions = _conditions(vmi)
    for name in change.conditions:
        conditions = set_condition(conditions, name, "True", now=rfc3339(now))
    status: Document = {"conditions": remove_condition(conditions, MIGRATION_REQUIRED)}
    if change.memory:
        status["memory"] = {"guestRequested": str(guest_memory(vmi.spec.domain))}
    return _patch(vmi, status)


def refused(
    vmi: VirtualMachineInstance, change: Change, message: str, now: datetime
) -> Document | None:
    """Return the patch of a VMI whose pod may not have more; None if it says so already."""
    conditions = _conditions(vmi)
    for name in change.conditions:
        conditions = set_condition(
            conditions, name, "False", reason=RESIZE_FAILED, message=message, now=rfc3339(now)
        )
    return _changed(vmi, conditions)


def has_no_room(
    vmi: VirtualMachineInstance, lacks: Iterable[str], now: datetime
) -> Document | None:
    """Return the patch of a VMI that has to migrate to a larger node; None if it says so."""
    missing = " and ".join(sorted(lacks))
    message = f"node {vmi.status.node_name} has not enough {missing} left for the changed VMI"
    conditions = set_condition(
        _conditions(vmi),
        MIGRATION_REQUIRED,
        "True",
        reason=NO_ROOM,
        message=message,
        now=rfc3339(now),
    )
    return _changed(vmi, conditions)


def clear_failures(vmi: VirtualMachineInstance) -> Document | None:
    """Return the patch of a VMI whose change was taken back: failed resizes leave its conditions.

    None if there is none.
    """
    if not _is_steady(vmi):
        return None
    is_failed = {VCPU_CHANGE: not has_condition(vmi, VCPU_CHANGE)}
    is_failed[MEMORY_CHANGE] = not has_condition(vmi, MEMORY_CHANGE)
    conditions = [
        each
        for each in _conditions(vmi)
        if each["type"] != MIGRATION_REQUIRED and not is_failed.get(each["type"], False)
    ]
    return _changed(vmi, conditions)


def _changed(vmi: VirtualMachineInstance, conditions: list[Document]) -> Document | None:
    if conditions == _conditions(vmi):
        return None
    return _patch(vmi, {"conditions": conditions})


def _patch(vmi: VirtualMachineInstance, status: Document) -> Document:
    return {"metadata": {"resourceVersion": vmi.metadata.resource_version}, "status": status}


def _conditions(vmi: VirtualMachineInstance) -> list[Document]:
    conditions: list[Document] = msgspec.to_builtins(vmi.status.conditions)
    return conditions


def _compute(pod: Pod) -> dict[str, dict[str, Quantity]]:
    """Return the resources of the container that stands for the machine."""
    containers = pod.spec.containers if pod.spec is not None else ()
    found = next((each.resources for each in containers if each.name == COMPUTE), None)
    if found is None:
        return {}
    return {"requests": dict(found.requests or {}), "limits": dict(found.limits or {})}


def _amounts(values: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount(value).nanos for name, value in values.items()}
