"""Whether a VirtualMachine can serve, and how many may be without for a while.  Pure.

An update asks the machine itself: what its VirtualMachine says of it comes a moment later.
"""

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.scale_plan import wanted
from corral.reconcile.objects import is_being_deleted


def is_available(machine: VirtualMachineInstance | None) -> bool:
    """Whether a machine runs, is ready, and is not going."""
    return (
        machine is not None
        and not is_being_deleted(machine)
        and machine.status.phase == "Running"
        and _is_ready(machine)
    )


def is_ready(vm: VirtualMachine) -> bool:
    """Whether a VirtualMachine says that its machine is ready: what the pool counts."""
    return _is_ready(vm)


def most_unavailable(pool: VirtualMachinePool) -> int:
    """How many machines an update may make unavailable: at least one, all where it is not said.

    A percentage is of the replicas that are wanted, rounded down.
    """
    allowed = pool.spec.max_unavailable
    if isinstance(allowed, int):
        return max(1, allowed)
    percent = int((allowed or "100%").removesuffix("%"))
    return max(1, wanted(pool) * percent // 100)


def _is_ready(one: VirtualMachine | VirtualMachineInstance) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in one.status.conditions)
