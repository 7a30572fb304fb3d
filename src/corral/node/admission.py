"""Which pods a node runs: those that stand for machines, and no others.  Pure."""

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node.facts import Trouble
from corral.reconcile.objects import owners_of

NOT_A_MACHINE = "NotAVirtualMachine"


def objection(pod: Pod) -> Trouble | None:
    """Why a pod is not run here; None where nothing speaks against it."""
    if not any(owner.controller and _is_instance(owner.kind) for owner in owners_of(pod)):
        return Trouble(
            reason=NOT_A_MACHINE,
            message="this node runs no containers, only the virt-launcher pods of virtual machines:"
            " create a VirtualMachineInstance, and delete this pod",
        )
    return None


def _is_instance(kind: str) -> bool:
    return kind == VirtualMachineInstance.kind
