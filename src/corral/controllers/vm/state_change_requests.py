"""What a VirtualMachine was told to do and has not done yet.  Pure.

Requests are taken one after the other; the first stays until what it asks for is so.
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

Machine = VirtualMachineInstance


def start_request(vm: VirtualMachine) -> StateChangeRequest | None:
    """The request to start that is next; requests are taken one after the other."""
    first = next(iter(vm.status.state_change_requests), None)
    return first if first is not None and first.action == START else None


def stop_asked(vm: VirtualMachine, vmi: Machine) -> bool:
    """Whether the next request is to stop just this machine."""
    first = next(iter(vm.status.state_change_requests), None)
    return first is not None and first.action == STOP and first.uid == vmi.metadata.uid


def is_paused_start(vm: VirtualMachine) -> bool:
    """Whether it is to start with its processors stopped: what one that is halted can be asked."""
    asked = start_request(vm)
    return asked is not None and asked.data.get(PAUSED) == "true"


def pending(vm: VirtualMachine, vmi: Machine | None) -> list[StateChangeRequest]:
    """The requests without the first, if that is fulfilled (isTrimFirstChangeRequestNeeded)."""
    requests = vm.status.state_change_requests
    if not requests:
        return requests
    first, *rest = requests
    if first.action == STOP:
        done = vmi is None or first.uid != vmi.metadata.uid
    elif vm.spec.strategy == HALTED and not is_paused_start(vm):
        done = True  # from before it was halted, which is what is wanted now
    else:
        done = vmi is not None and not is_being_deleted(vmi) and not vmi.is_final
    return rest if done else requests
