"""Outcomes of an eviction of a VMI's pod: it migrates, is replaced, or would be lost.  Pure.

The rules are those of evictions (KubeVirt's pod-eviction-admitter) and of the owners of VMIs.
"""

from enum import Enum

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import ALWAYS, VirtualMachine
from corral.api.kinds.vmi.live_migration import BY_MIGRATION, is_live_migratable
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.pod_owners import PodOwner


class EvictionOutcome(Enum):
    """The way in which a VMI leaves its node; the values are for people."""

    MIGRATION = "it is moved, by a live migration or by an external controller"
    REPLACEMENT = "it ends, and its owner starts another one"
    REFUSED = "evictionStrategy is LiveMigrate, but the VMI is not live-migratable"
    LOSS = "it would end, and nothing would start it again"


def eviction_outcome(
    vmi: VirtualMachineInstance, owner: PodOwner | None, default: str | None = None
) -> EvictionOutcome:
    """Return the outcome of an eviction; ``owner`` is the topmost owner, None if not found.

    ``default``: the eviction strategy of VMIs that have none.
    """
    strategy = vmi.spec.eviction_strategy or default
    if strategy == "External":
        return EvictionOutcome.MIGRATION
    if strategy in BY_MIGRATION:
        if is_live_migratable(vmi):
            return EvictionOutcome.MIGRATION
        if strategy == "LiveMigrate":
            return EvictionOutcome.REFUSED
    return EvictionOutcome.REPLACEMENT if _replaces(owner) else EvictionOutcome.LOSS


def _replaces(owner: PodOwner | None) -> bool:
    """Return whether an owner starts another VMI when one ends without having failed."""
    if owner is None or is_being_deleted(owner):
        return False
    match owner:
        case VirtualMachineInstanceReplicaSet():
            return not owner.spec.paused
        case VirtualMachinePool():  # its VirtualMachines do, also while it is paused
            return owner.spec.virtual_machine_template.spec.strategy == ALWAYS
        case VirtualMachine():
            return owner.spec.strategy == ALWAYS
        case _:
            return False
