"""Decides which VMIs a replica set creates and deletes. Pure.

VMIs that are finished or being deleted stop counting at once, so a replacement starts before the
old guest is gone, as in KubeVirt. VMIs in phase Unknown do not count either: KubeVirt's user guide
has them replaced, though its controller waits until somebody marks them Failed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.replacement import is_to_be_replaced, replaces_after_ready
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.replicas import is_active, is_ready, vmi_of, vmis_to_delete

BURST = 250
"""VMIs created or deleted in one sync; the next sync waits until the cache shows them."""


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


def new_vmi(replica_set: VirtualMachineInstanceReplicaSet) -> Document:
    """Return the VMI document of a replica set."""
    return vmi_of(replica_set.spec.template, replica_set, prefix=replica_set.metadata.name)
