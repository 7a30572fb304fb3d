"""``status.stateChangeRequests`` of a VirtualMachine: start and stop requests not yet fulfilled.

Pure.

Requests are handled one after the other; the first stays until it is fulfilled.
"""

from corral.api.kinds.kubevirt.virtualmachine import (
    HALTED,
    PAUSED,
    START,
    STOP,
    StateChangeRequest,
    VirtualMachine,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.reconcile.objects import is_being_deleted

VMI = VirtualMachineInstance


def start_request(vm: VirtualMachine) -> StateChangeRequest | None:
    """Return the first request if it is a start."""
    first = next(iter(vm.status.state_change_requests), None)
    return first if first is not None and first.action == START else None


def is_stop_requested(vm: VirtualMachine, vmi: VMI) -> bool:
    """Report whether the first request is to stop this VMI."""
    first = next(iter(vm.status.state_change_requests), None)
    return first is not None and first.action == STOP and first.uid == vmi.metadata.uid


def is_paused_start(vm: VirtualMachine) -> bool:
    """Report whether the first request starts the VMI paused, even if halted."""
    request = start_request(vm)
    return request is not None and request.data.get(PAUSED) == "true"


def pending(vm: VirtualMachine, vmi: VMI | None) -> list[StateChangeRequest]:
    """Return the requests without a fulfilled first one (isTrimFirstChangeRequestNeeded)."""
    requests = vm.status.state_change_requests
    if not requests:
        return requests
    first, *rest = requests
    if first.action == STOP:
        done = vmi is None or first.uid != vmi.metadata.uid
    elif vm.spec.strategy == HALTED and not is_paused_start(vm):
        done = True  # older than the halt, which overrides it
    else:
        done = vmi is not None and not is_being_deleted(vmi) and not vmi.is_final
    return rest if done else requests
