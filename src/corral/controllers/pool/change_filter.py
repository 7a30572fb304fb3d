"""What a pool acts upon of its VirtualMachines and their machines: other changes are no news."""

from typing import Any

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.availability import is_available, is_ready
from corral.controllers.pool.memory_plan import names_claim
from corral.controllers.pool.scale_plan import is_leaving
from corral.reconcile.objects import is_going


def vm_news(vm: VirtualMachine) -> tuple[Any, ...]:
    """Two states of a VirtualMachine that answer the same are the same to its pool."""
    return (
        is_going(vm),
        is_leaving(vm),
        is_ready(vm),
        names_claim(vm),
        vm.metadata.labels,
        vm.metadata.owner_references,
        vm.metadata.finalizers,
        vm.status.printable_status,
        vm.status.start_failure,
    )


def machine_news(machine: VirtualMachineInstance) -> tuple[Any, ...]:
    """Two states of a machine that answer the same are the same to its VirtualMachine's pool."""
    return (
        is_going(machine),
        is_available(machine),
        machine.is_final,
        machine.metadata.labels,
    )
