"""What a replica set has to do, given its machines.  Pure.

Machines that are finished or going do not count from the moment that is known, so a replacement
starts before the old guest is gone, as with KubeVirt.  Nor do those that hang: KubeVirt's guide has
them replaced, while its controller waits until somebody says that they failed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.vmi import UNKNOWN, VirtualMachineInstance
from corral.api.object import Document
from corral.reconcile.objects import is_being_deleted, owner_reference

BURST = 250
"""Machines that are made or deleted in one go; the next go waits until the cache shows them."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation on a machine: where a set shrinks, lower costs go first (Kubernetes' KEP 2255)."""

_LOWEST_COST, _HIGHEST_COST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """How far a set is, and what brings it nearer to what is wanted."""

    replicas: int
    """Machines that count."""
    ready_replicas: int
    difference: int
    """Machines that count less those that are wanted."""
    create: int
    delete: tuple[VirtualMachineInstance, ...]
    clean: tuple[VirtualMachineInstance, ...]
    """Finished machines, those that hang, and those whose pod is gone or going."""


def plan(
    replica_set: VirtualMachineInstanceReplicaSet,
    owned: Iterable[VirtualMachineInstance],
    *,
    burst: int = BURST,
    held: bool = False,
) -> Plan:
    """What to do about a set and the machines that it owns.

    ``held`` keeps it from making machines: those that it made ended too soon.
    """
    machines = list(owned)
    active = [machine for machine in machines if is_active(machine)]
    difference = len(active) - wanted(replica_set)
    acts = not (replica_set.spec.paused or is_being_deleted(replica_set))
    spent = (each for each in machines if not is_active(each) and not is_being_deleted(each))
    return Plan(
        replicas=len(active),
        ready_replicas=sum(map(is_ready, active)),
        difference=difference,
        create=min(max(-difference, 0), burst) if acts and not held else 0,
        delete=victims(active, min(max(difference, 0), burst)) if acts else (),
        clean=tuple(islice(spent, burst)) if acts else (),
    )


def wanted(replica_set: VirtualMachineInstanceReplicaSet) -> int:
    """How many machines the set shall have: one where it does not say."""
    replicas = replica_set.spec.replicas
    return 1 if replicas is None else replicas


def is_active(machine: VirtualMachineInstance) -> bool:
    """Whether a machine counts: neither finished, nor going, nor lost to its node or its pod."""
    lost = machine.status.phase == UNKNOWN or _loses_its_pod(machine)
    return not (machine.is_final or is_being_deleted(machine) or lost)


def is_ready(machine: VirtualMachineInstance) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in machine.status.conditions
    )


def _loses_its_pod(machine: VirtualMachineInstance) -> bool:
    return any(
        condition.type == "Ready"
        and condition.status == "False"
        and condition.reason == "PodTerminating"
        for condition in machine.status.conditions
    )


def victims(
    active: Sequence[VirtualMachineInstance], count: int
) -> tuple[VirtualMachineInstance, ...]:
    """The machines to delete: those whose loss costs least, as Kubernetes' ReplicaSet chooses pods.

    Not scheduled before scheduled, not ready before ready, then by the annotation, then the newest.
    """
    if not count:
        return ()
    newest_first = sorted(
        active,
        key=lambda machine: (machine.metadata.creation_timestamp or "", machine.metadata.name),
        reverse=True,
    )
    by_loss = sorted(
        newest_first,
        key=lambda machine: (
            bool(machine.status.node_name),
            is_ready(machine),
            deletion_cost(machine),
        ),
    )
    return tuple(by_loss[:count])


def deletion_cost(machine: VirtualMachineInstance) -> int:
    """What the annotation says; 0 without one, and for one that is no 32-bit number."""
    text = machine.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10):
        return 0
    cost = int(text)
    return cost if _LOWEST_COST <= cost <= _HIGHEST_COST else 0


def new_machine(replica_set: VirtualMachineInstanceReplicaSet) -> Document:
    """The machine that a set makes: its template, under a name of the server's choice.

    The stem of the name is the template's name, else its generateName, else the set's name, with
    no dash added: ``test`` becomes ``testh8998``.
    """
    template = replica_set.spec.template
    metadata: dict[str, Any] = msgspec.to_builtins(template.metadata)
    stem = metadata.pop("name", "") or metadata.get("generateName") or replica_set.metadata.name
    metadata["generateName"] = stem
    metadata["namespace"] = replica_set.metadata.namespace
    metadata["ownerReferences"] = [owner_reference(replica_set)]
    return {"metadata": metadata, "spec": msgspec.to_builtins(template.spec)}
