"""What a run strategy asks to be done about a machine (vm.go, syncRunStrategy).  Pure."""

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
from corral.controllers.vm.state_change_requests import is_paused_start, start_request, stop_asked
from corral.reconcile.objects import is_being_deleted

Machine = VirtualMachineInstance


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a machine, at most one of making and deleting it."""

    create: bool = False
    delete: bool = False
    ask_for_start: bool = False
    """Note that another one is to be made, before this one is deleted: else that were forgotten."""
    become_always: bool = False
    """A halted VirtualMachine was told to start, and is to stay started."""
    wait_seconds: float = 0.0
    """It is too early to make the machine: the last ones ended before they ran."""


NOTHING = Plan()


def plan(vm: VirtualMachine, vmi: Machine | None, now: datetime) -> Plan:
    """What follows from a VirtualMachine and the machine that it has."""
    if is_being_deleted(vm):
        return NOTHING if vmi is None else _delete(vmi)
    return _OF[vm.spec.strategy](vm, vmi, now)


def is_set_to_start(vm: VirtualMachine, vmi: Machine | None) -> bool:
    """Whether the machine runs, or is to run, by its run strategy and by what it was told."""
    match vm.spec.strategy:
        case "Always":
            return True
        case "Manual":
            return start_request(vm) is not None if vmi is None else not stop_asked(vm, vmi)
        case "RerunOnFailure":
            return vmi is None or vmi.status.phase != "Succeeded"
        case "Once":
            return vmi is None
    return False


def _always(vm: VirtualMachine, vmi: Machine | None, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now)
    return _delete(vmi) if vmi.is_final or stop_asked(vm, vmi) else NOTHING


def _rerun_on_failure(vm: VirtualMachine, vmi: Machine | None, now: datetime) -> Plan:
    if vmi is None:
        switched = vm.status.run_strategy != RERUN_ON_FAILURE
        return _start(vm, now) if switched or start_request(vm) else NOTHING
    stopped = stop_asked(vm, vmi)
    if is_being_deleted(vmi) or not (stopped or vmi.is_final):
        return NOTHING
    asked = any(each.action == START for each in vm.status.state_change_requests)
    again = vmi.status.phase == "Failed" and not stopped and not asked
    return Plan(delete=True, ask_for_start=again)


def _manual(vm: VirtualMachine, vmi: Machine | None, now: datetime) -> Plan:
    if vmi is None:
        return _start(vm, now) if start_request(vm) else NOTHING
    return _delete(vmi) if stop_asked(vm, vmi) else NOTHING


def _halted(vm: VirtualMachine, vmi: Machine | None, _now: datetime) -> Plan:
    if vmi is None:
        return Plan(become_always=is_paused_start(vm))
    return _delete(vmi)


def _once(vm: VirtualMachine, vmi: Machine | None, now: datetime) -> Plan:
    return _start(vm, now) if vmi is None else NOTHING


def _start(vm: VirtualMachine, now: datetime) -> Plan:
    wait = seconds_left(vm, now)
    return Plan(wait_seconds=wait) if wait > 0 else Plan(create=True)


def _delete(vmi: Machine) -> Plan:
    return NOTHING if is_being_deleted(vmi) else Plan(delete=True)


_OF: Mapping[str, Callable[[VirtualMachine, Machine | None, datetime], Plan]] = {
    ALWAYS: _always,
    RERUN_ON_FAILURE: _rerun_on_failure,
    MANUAL: _manual,
    HALTED: _halted,
    ONCE: _once,
}
