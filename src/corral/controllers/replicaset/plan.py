"""Decides which VMIs a replica set creates and deletes. Pure.

VMIs that are finished or being deleted stop counting at once, so a replacement starts before the
old guest is gone, as in KubeVirt. VMIs in phase Unknown do not count either: KubeVirt's user guide
has them replaced, though its controller waits until somebody marks them Failed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.replacement import is_to_be_replaced, replaces_after_ready
from corral.api.kinds.vmi.vmi import UNKNOWN, VirtualMachineInstance
from corral.api.object import Condition, Document
from corral.reconcile.objects import is_being_deleted, owner_reference

BURST = 250
"""VMIs created or deleted in one sync; the next sync waits until the cache shows them."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a VMI: on scale-down lower costs are deleted first (KEP-2255)."""

_LOWEST_COST, _HIGHEST_COST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Observed replicas, and the VMIs to create and to delete."""

    replicas: int
    """Number of active VMIs."""
    ready_replicas: int
    difference: int
    """Active VMIs that stay minus desired replicas."""
    create: int
    delete: tuple[VirtualMachineInstance, ...]
    clean: tuple[VirtualMachineInstance, ...]
    """Inactive VMIs to delete: finished, in phase Unknown, or with a pod that terminates."""


def plan(
    replica_set: VirtualMachineInstanceReplicaSet,
    owned: Iterable[VirtualMachineInstance],
    *,
    burst: int = BURST,
    backing_off: bool = False,
) -> Plan:
    """Return the plan for a replica set and the VMIs that it owns.

    ``backing_off`` suppresses creation: the back-off of the set is running.
    """
    active: list[VirtualMachineInstance] = []
    inactive: list[VirtualMachineInstance] = []
    for vmi in owned:
        (active if is_active(vmi) else inactive).append(vmi)
    staying, leaving = active, list[VirtualMachineInstance]()
    if replaces_after_ready(replica_set.metadata.annotations):
        staying = [vmi for vmi in active if not is_to_be_replaced(vmi)]
        leaving = [vmi for vmi in active if is_to_be_replaced(vmi)]
    desired = desired_replicas(replica_set)
    difference = len(staying) - desired
    acts = not (replica_set.spec.paused or is_being_deleted(replica_set))
    unclean = (each for each in inactive if not is_being_deleted(each))
    return Plan(
        replicas=len(active),
        ready_replicas=sum(map(is_ready, active)),
        difference=difference,
        create=min(max(-difference, 0), burst) if acts and not backing_off else 0,
        delete=_doomed(staying, leaving, desired)[:burst] if acts else (),
        clean=tuple(islice(unclean, burst)) if acts else (),
    )


def _doomed(
    staying: Sequence[VirtualMachineInstance],
    leaving: Sequence[VirtualMachineInstance],
    desired: int,
) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs to delete: those above the desired replicas, and those that are replaced."""
    surplus = vmis_to_delete(staying, max(len(staying) - desired, 0))
    if not leaving:
        return surplus
    ready = sum(map(is_ready, staying)) - sum(map(is_ready, surplus))
    return (*surplus, *replaced(leaving, ready + sum(map(is_ready, leaving)) - desired))


def replaced(
    leaving: Sequence[VirtualMachineInstance], spare: int
) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs that may leave their nodes now: ``spare`` ready ones, and any others.

    Those that are not ready serve nobody, so nothing is lost by them.
    """
    ready = [vmi for vmi in leaving if is_ready(vmi)]
    others = [vmi for vmi in leaving if not is_ready(vmi)]
    return (*others, *ready[: max(0, spare)])


def desired_replicas(replica_set: VirtualMachineInstanceReplicaSet) -> int:
    """Return the desired replicas: 1 where the spec has none."""
    replicas = replica_set.spec.replicas
    return 1 if replicas is None else replicas


def is_active(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI counts: not finished, being deleted, Unknown, or losing its pod."""
    return not (
        is_being_deleted(vmi)  # the cheapest first: a set evaluates all of its VMIs in each sync
        or vmi.is_final
        or vmi.status.phase == UNKNOWN
        or _pod_terminates(vmi)
    )


def is_ready(vmi: VirtualMachineInstance) -> bool:
    ready = _ready_condition(vmi)
    return ready is not None and ready.status == "True"


def _pod_terminates(vmi: VirtualMachineInstance) -> bool:
    ready = _ready_condition(vmi)
    return ready is not None and ready.status == "False" and ready.reason == "PodTerminating"


def _ready_condition(vmi: VirtualMachineInstance) -> Condition | None:
    for condition in vmi.status.conditions:  # half the time of next() with a generator
        if condition.type == "Ready":
            return condition
    return None


def vmis_to_delete(
    active: Sequence[VirtualMachineInstance], count: int
) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs to delete, in the order of Kubernetes' ReplicaSet for pods.

    Not scheduled before scheduled, not ready before ready, then by deletion cost, then the newest.
    """
    if not count:
        return ()
    newest_first = sorted(
        active,
        key=lambda vmi: (vmi.metadata.creation_timestamp or "", vmi.metadata.name),
        reverse=True,
    )
    by_cost = sorted(
        newest_first,
        key=lambda vmi: (
            bool(vmi.status.node_name),
            is_ready(vmi),
            deletion_cost(vmi),
        ),
    )
    return tuple(by_cost[:count])


def deletion_cost(vmi: VirtualMachineInstance) -> int:
    """Return the deletion cost; 0 where the annotation is missing or no 32-bit number."""
    text = vmi.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10):
        return 0
    cost = int(text)
    return cost if _LOWEST_COST <= cost <= _HIGHEST_COST else 0


def new_vmi(replica_set: VirtualMachineInstanceReplicaSet) -> Document:
    """Return the VMI document of a replica set: its template, with a generated name.

    The prefix is the template's name, else its generateName, else the name of the set, without a
    dash in between: ``test`` becomes ``testh8998``.
    """
    template = replica_set.spec.template
    metadata: dict[str, Any] = msgspec.to_builtins(template.metadata)
    prefix = metadata.pop("name", "") or metadata.get("generateName") or replica_set.metadata.name
    metadata["generateName"] = prefix
    metadata["namespace"] = replica_set.metadata.namespace
    metadata["ownerReferences"] = [owner_reference(replica_set)]
    return {"metadata": metadata, "spec": msgspec.to_builtins(template.spec)}
