"""How many VirtualMachines a pool makes, and which it takes away.  Pure but for the dice.

A VirtualMachine counts until it is gone: its replacement has its number, and its disks.
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
"""VirtualMachines that are made, changed or deleted in one go; the next go waits until the cache
shows them."""
LEAVING = "corral.dev/scaled-in"
"""Annotation of a VirtualMachine that its pool has chosen to go: what is kept of its state.

It is written before anything else is done, so that whoever takes up the work knows."""
RAN_AS = "corral.dev/ran-as"
"""Annotation of one whose memory is saved first: the run strategy that it had until then."""

_SETTLED: Mapping[str, StatePreservation] = {
    "Disabled": "Disabled",
    "Offline": "Offline",
    "Online": "Online",
}


@dataclass(frozen=True, slots=True)
class Scaling:
    """What brings a pool nearer to the size that is wanted."""

    create: int
    remove: tuple[VirtualMachine, ...]


def plan(
    pool: VirtualMachinePool, owned: Sequence[VirtualMachine], dice: Random, *, burst: int = BURST
) -> Scaling:
    """What to do about the number of VirtualMachines that a pool owns."""
    difference = len(owned) - wanted(pool)
    if difference < 0:
        return Scaling(min(-difference, burst), ())
    strategy = _proactive(pool)
    if strategy is None:
        return Scaling(0, ())
    staying = [vm for vm in owned if not is_leaving(vm)]
    due = difference - (len(owned) - len(staying))
    candidates = ordered(staying, strategy.selection_policy, dice) if due > 0 else []
    return Scaling(0, first(candidates, min(due, burst)))


def wanted(pool: VirtualMachinePool) -> int:
    """How many VirtualMachines the pool shall have: one where it does not say."""
    replicas = pool.spec.replicas
    return 1 if replicas is None else replicas


def is_leaving(vm: VirtualMachine) -> bool:
    """Whether a VirtualMachine goes, or is about to."""
    return is_being_deleted(vm) or is_marked(vm)


def is_marked(vm: VirtualMachine) -> bool:
    """Whether its pool has chosen a VirtualMachine to go."""
    return LEAVING in vm.metadata.annotations


def settled(vm: VirtualMachine) -> StatePreservation | None:
    """What was settled to be kept of a VirtualMachine when its pool chose it, if it did."""
    return _SETTLED.get(vm.metadata.annotations.get(LEAVING, ""))


def kept_when_removed(pool: VirtualMachinePool) -> StatePreservation:
    """What is kept of the VirtualMachines that the pool itself takes away."""
    strategy = _proactive(pool)
    return (strategy.state_preservation if strategy is not None else None) or "Disabled"


def kept(pool: VirtualMachinePool, vm: VirtualMachine) -> StatePreservation:
    """What is kept of a VirtualMachine that goes: as was settled when it was chosen.

    What users delete themselves is kept as the opportunistic strategy says.
    """
    if (known := settled(vm)) is not None:
        return known
    strategy = (pool.spec.scale_in_strategy or ScaleInStrategy()).opportunistic
    return (strategy.state_preservation if strategy is not None else None) or "Disabled"


def _proactive(pool: VirtualMachinePool) -> ProactiveScaleIn | None:
    """How the pool chooses what goes; None where it leaves that to its users."""
    strategy = pool.spec.scale_in_strategy or ScaleInStrategy()
    if strategy.proactive is not None:
        return strategy.proactive
    if strategy.opportunistic is not None or strategy.unmanaged is not None:
        return None
    return ProactiveScaleIn()
