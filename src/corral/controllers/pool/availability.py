"""Availability of VirtualMachines, and how many may be unavailable. Pure.

Updates check the VMI itself: the status of its VirtualMachine lags behind.
"""

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.scale_plan import desired_replicas
from corral.reconcile.objects import is_being_deleted


def is_available(vmi: VirtualMachineInstance | None) -> bool:
    """Report whether a VMI runs, is ready, and is not being deleted."""
    return (
        vmi is not None
        and not is_being_deleted(vmi)
        and vmi.status.phase == "Running"
        and _is_ready(vmi)
    )


def is_ready(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine is Ready, which ``readyReplicas`` counts."""
    return _is_ready(vm)


def max_unavailable(pool: VirtualMachinePool) -> int:
    """Return how many VMIs an update may make unavailable: at least one; all by default.

    A percentage is of the desired replicas, rounded down.
    """
    allowed = pool.spec.max_unavailable
    if isinstance(allowed, int):
        return max(1, allowed)
    percent = int((allowed or "100%").removesuffix("%"))
    return max(1, desired_replicas(pool) * percent // 100)


def _is_ready(one: VirtualMachine | VirtualMachineInstance) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in one.status.conditions)
