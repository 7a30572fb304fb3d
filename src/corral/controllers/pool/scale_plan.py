"""Plans how many VirtualMachines a pool creates, and which it deletes. Pure but for random order.

A VirtualMachine counts until it is gone: its replacement gets its number, and its disks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from corral.api.kinds.kubevirt.pool import (
    ProactiveScaleIn,
    ScaleInStrategy,
    StatePreservation,
    VirtualMachinePool,
)
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.controllers.pool.selection import first, ordered
from corral.reconcile.objects import is_being_deleted

BURST = 250
"""VirtualMachines created, changed or deleted in one sync; the next sync waits until the cache
shows them."""
LEAVING = "corral.dev/scaled-in"
"""Annotation of a VirtualMachine selected for scale-in: how its state is preserved. It is written
first, so that a restarted manager continues the work."""
RUN_STRATEGY = "corral.dev/ran-as"
"""Annotation of one whose memory is saved first: the run strategy that it had until then."""

_PRESERVATIONS: Mapping[str, StatePreservation] = {
    "Disabled": "Disabled",
    "Offline": "Offline",
    "Online": "Online",
}


@dataclass(frozen=True, slots=True)
class Scaling:
    """Number of VirtualMachines to create, and those to delete."""

    create: int
    remove: tuple[VirtualMachine, ...]


def plan(
    pool: VirtualMachinePool, owned: Sequence[VirtualMachine], rng: Random, *, burst: int = BURST
) -> Scaling:
    """Return what brings a pool to its desired size."""
    difference = len(owned) - desired_replicas(pool)
    if difference < 0:
        return Scaling(min(-difference, burst), ())
    strategy = _proactive(pool)
    if strategy is None:
        return Scaling(0, ())
    staying = [vm for vm in owned if not is_leaving(vm)]
    due = difference - (len(owned) - len(staying))
    candidates = ordered(staying, strategy.selection_policy, rng) if due > 0 else []
    return Scaling(0, first(candidates, min(due, burst)))


def desired_replicas(pool: VirtualMachinePool) -> int:
    """Return the desired replicas: 1 where the spec has none."""
    replicas = pool.spec.replicas
    return 1 if replicas is None else replicas


def is_leaving(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine is being deleted or marked for scale-in."""
    return is_being_deleted(vm) or is_marked(vm)


def is_marked(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine is marked for scale-in."""
    return LEAVING in vm.metadata.annotations


def marked_preservation(vm: VirtualMachine) -> StatePreservation | None:
    """Return how to preserve the state of a marked VirtualMachine, as its mark says."""
    return _PRESERVATIONS.get(vm.metadata.annotations.get(LEAVING, ""))


def scale_in_preservation(pool: VirtualMachinePool) -> StatePreservation:
    """Return how to preserve the state of VirtualMachines that the pool deletes."""
    strategy = _proactive(pool)
    return (strategy.state_preservation if strategy is not None else None) or "Disabled"


def preservation_of(pool: VirtualMachinePool, vm: VirtualMachine) -> StatePreservation:
    """Return how to preserve the state of a VirtualMachine: as its mark says.

    Without a mark, for one that a user deletes, the opportunistic strategy decides.
    """
    if (preservation := marked_preservation(vm)) is not None:
        return preservation
    strategy = (pool.spec.scale_in_strategy or ScaleInStrategy()).opportunistic
    return (strategy.state_preservation if strategy is not None else None) or "Disabled"


def _proactive(pool: VirtualMachinePool) -> ProactiveScaleIn | None:
    """Return how the pool selects VirtualMachines to delete; None if users delete them."""
    strategy = pool.spec.scale_in_strategy or ScaleInStrategy()
    if strategy.proactive is not None:
        return strategy.proactive
    if strategy.opportunistic is not None or strategy.unmanaged is not None:
        return None
    return ProactiveScaleIn()
