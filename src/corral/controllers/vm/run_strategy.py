"""Decides from the run strategy whether to create or delete the VMI (vm.go, syncRunStrategy).

Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from corral.api.kinds.kubevirt.virtualmachine import (
    ALWAYS,
    HALTED,
    MANUAL,
    ONCE,
    RERUN_ON_FAILURE,
    START,
    VirtualMachine,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.vm.start_failure import seconds_left
from corral.controllers.vm.state_change_requests import (
    is_paused_start,
    is_stop_requested,
    start_request,
)
from corral.reconcile.objects import is_being_deleted

VMI = VirtualMachineInstance


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions on the VMI; at most one of ``create`` and ``delete``."""

    create: bool = False
    delete: bool = False
    request_start: bool = False
    """Write a start request before the VMI is deleted: afterwards nothing says that it failed."""
    set_always: bool = False
    """A halted VirtualMachine was started, and is to stay started."""
    wait_seconds: float = 0.0
    """Start back-off: earlier VMIs ended before they ran."""


NOTHING = Plan()


def plan(vm: VirtualMachine, vmi: VMI | None, now: datetime) -> Plan:
    """Return the plan for a VirtualMachine and its VMI."""
    if is_being_deleted(vm):
        return NOTHING if vmi is None else _delete(vmi)
    return _STRATEGIES[vm.spec.strategy](vm, vmi, now)


def is_set_to_start(vm: VirtualMachine, vmi: VMI | None) -> bool:
    """Report whether the VMI runs, or is to run, by run strategy and requests."""
    match vm.spec.strategy:
        case "Always":
            return True
        case "Manual":
            return start_request(vm) is not None if vmi is None else not is_stop_requested(vm, vmi)
        case "RerunOnFailure":
            return vmi is None or vmi.status.phase != "Succeeded"
        case "Once":
            return vmi is None
    return False


def _always(vm: VirtualMachine, vmi: VMI | None, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now)
    return _delete(vmi) if vmi.is_final or is_stop_requested(vm, vmi) else NOTHING


def _rerun_on_failure(vm: VirtualMachine, vmi: VMI | None, now: datetime) -> Plan:
    if vmi is None:
        switched = vm.status.run_strategy != RERUN_ON_FAILURE
        return _start(vm, now) if switched or start_request(vm) else NOTHING
    stopped = is_stop_requested(vm, vmi)
    if is_being_deleted(vmi) or not (stopped or vmi.is_final):
        return NOTHING
    has_request = any(each.action == START for each in vm.status.state_change_requests)
    restart = vmi.status.phase == "Failed" and not stopped and not has_request
    return Plan(delete=True, request_start=restart)


def _manual(vm: VirtualMachine, vmi: VMI | None, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now) if start_request(vm) else NOTHING
    return _delete(vmi) if is_stop_requested(vm, vmi) else NOTHING


def _halted(vm: VirtualMachine, vmi: VMI | None, _now: datetime) -> Plan:
    if vmi is None:
        return Plan(set_always=is_paused_start(vm))
    return _delete(vmi)


def _once(vm: VirtualMachine, vmi: VMI | None, now: datetime) -> Plan:
    return _start(vm, now) if vmi is None else NOTHING


def _start(vm: VirtualMachine, now: datetime) -> Plan:
    wait = seconds_left(vm, now)
    return Plan(wait_seconds=wait) if wait > 0 else Plan(create=True)


def _delete(vmi: VMI) -> Plan:
    return NOTHING if is_being_deleted(vmi) else Plan(delete=True)


_STRATEGIES: Mapping[str, Callable[[VirtualMachine, VMI | None, datetime], Plan]] = {
    ALWAYS: _always,
    RERUN_ON_FAILURE: _rerun_on_failure,
    MANUAL: _manual,
    HALTED: _halted,
    ONCE: _once,
}
