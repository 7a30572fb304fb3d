"""Status and conditions of a VirtualMachine (vm.go, updateStatus). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from corral.api.kinds.kubevirt.virtualmachine import (
    RESTART_REQUIRED,
    VirtualMachine,
    VirtualMachineStatus,
    generation,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition, Document
from corral.api.patch.merge import difference
from corral.api.time import rfc3339
from corral.controllers.vm.disks import Disks
from corral.controllers.vm.errors import Refused
from corral.controllers.vm.printable_status import PrintableInputs, printable_status
from corral.controllers.vm.run_strategy import Plan
from corral.controllers.vm.start_failure import RandomBelow, start_failure
from corral.controllers.vm.state_change_requests import pending

READY, FAILURE = "Ready", "Failure"
OWN = frozenset({READY, FAILURE, RESTART_REQUIRED})
"""Conditions of the VirtualMachine itself; all others are copied from its VMI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """Inputs of the status."""

    vmi: VirtualMachineInstance | None
    plan: Plan
    disks: Disks
    refused: Refused | None = None
    restart: str = ""
    """The cause of a restart that the VMI needs to match the spec; empty if it matches."""


def status_of(
    vm: VirtualMachine, inputs: StatusInputs, now: datetime, random_below: RandomBelow
) -> VirtualMachineStatus:
    """Return the status of a VirtualMachine."""
    vmi, old = inputs.vmi, vm.status
    failed = start_failure(vm, vmi, now, random_below)
    status = replace(
        old,
        created=vmi is not None,
        ready=vmi is not None and _is_ready(vmi),
        run_strategy=_run_strategy(vm, inputs),
        state_change_requests=pending(vm, vmi),
        start_failure=failed,
        conditions=conditions(vm, inputs, now),
        printable_status=printable_status(
            PrintableInputs(
                vm=vm,
                vmi=vmi,
                disks=inputs.disks,
                start_failure=failed,
                stopping=inputs.plan.delete,
                starting=inputs.plan.create and inputs.refused is None,
            )
        ),
    )
    if vmi is not None and (observed := generation(vmi)):
        status.observed_generation, status.desired_generation = observed, vm.metadata.generation
    return status


def status_patch(old: VirtualMachineStatus, new: VirtualMachineStatus) -> Document:
    """Return the merge patch from one status to the other; empty if they are equal."""
    return difference(msgspec.to_builtins(old), msgspec.to_builtins(new))


def _run_strategy(vm: VirtualMachine, inputs: StatusInputs) -> str:
    """Return the strategy that was last acted upon; empty before the first VMI.

    It does not change while a VMI is still to be created: RerunOnFailure compares it with the spec
    to find out whether that VMI is due.
    """
    observed, desired = vm.status.run_strategy, vm.spec.strategy
    if inputs.vmi is not None:
        return desired
    is_due = inputs.plan.create or inputs.plan.wait_seconds > 0
    return desired if observed and not is_due else observed


# ------------------------------------------------------------------ conditions


def conditions(vm: VirtualMachine, inputs: StatusInputs, now: datetime) -> list[Condition]:
    """Return the desired conditions. Those of a deleted VMI stay, as in KubeVirt."""
    old = vm.status.conditions
    new = [_ready(inputs.vmi, now)]
    if inputs.refused is not None:
        new.append(_true(FAILURE, inputs.refused.message, now, reason=inputs.refused.reason))
    if inputs.restart:
        new.append(_true(RESTART_REQUIRED, inputs.restart, now))
    if inputs.vmi is None:
        new += [each for each in old if each.type not in OWN]
    else:
        new += [each for each in inputs.vmi.status.conditions if each.type not in OWN]
    return _merge(old, new)


def _merge(old: Sequence[Condition], new: Sequence[Condition]) -> list[Condition]:
    """Return the new conditions in the order of the old ones.

    A condition is replaced only when its status or reason changes, as in KubeVirt: its message and
    times may be those of an earlier transition.
    """
    by_type = {each.type: each for each in new}
    kept = [
        each if _is_same(each, by_type[each.type]) else by_type[each.type]
        for each in old
        if each.type in by_type
    ]
    old_types = {each.type for each in old}
    return kept + [each for each in new if each.type not in old_types]


def _is_same(one: Condition, other: Condition) -> bool:
    if one.type == RESTART_REQUIRED and one.message != other.message:
        return False
    return (one.status, one.reason) == (other.status, other.reason)


def _ready(vmi: VirtualMachineInstance | None, now: datetime) -> Condition:
    if vmi is None:
        return _not_ready("VMINotExists", "VMI does not exist", now)
    found = next((each for each in vmi.status.conditions if each.type == READY), None)
    if found is None:
        return _not_ready("VMIConditionMissing", "VMI is missing the Ready condition", now)
    return found


def _is_ready(vmi: VirtualMachineInstance) -> bool:
    return any(each.type == READY and each.status == "True" for each in vmi.status.conditions)


def _not_ready(reason: str, message: str, now: datetime) -> Condition:
    moment = rfc3339(now)
    return Condition(
        type=READY,
        status="False",
        reason=reason,
        message=message,
        last_probe_time=moment,
        last_transition_time=moment,
    )


def _true(name: str, message: str, now: datetime, *, reason: str = "") -> Condition:
    return Condition(
        type=name,
        status="True",
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
    )
