"""What is said of a VirtualMachine: its status and conditions (vm.go, updateStatus).  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from corral.api.kinds.kubevirt.virtualmachine import (
    GENERATION,
    VirtualMachine,
    VirtualMachineStatus,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition, Document
from corral.api.patch.merge import difference
from corral.api.time import rfc3339
from corral.controllers.vm.disks import Disks
from corral.controllers.vm.errors import Refused
from corral.controllers.vm.printable_status import Seen, printable_status
from corral.controllers.vm.run_strategy import Plan
from corral.controllers.vm.start_failure import Dice, start_failure
from corral.controllers.vm.state_change_requests import pending

READY, FAILURE, RESTART_REQUIRED = "Ready", "Failure", "RestartRequired"
OWN = frozenset({READY, FAILURE, RESTART_REQUIRED})
"""Conditions that tell of the VirtualMachine; all others are its machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found and done, of which the status tells."""

    vmi: VirtualMachineInstance | None
    plan: Plan
    disks: Disks
    refused: Refused | None = None
    restart: str = ""
    """Why the machine has to start anew to be as is wanted; empty if it need not."""


def status_of(vm: VirtualMachine, facts: Facts, now: datetime, dice: Dice) -> VirtualMachineStatus:
    """The status that tells all this."""
    vmi, old = facts.vmi, vm.status
    failed = start_failure(vm, vmi, now, dice)
    told = replace(
        old,
        created=vmi is not None,
        ready=vmi is not None and _is_ready(vmi),
        run_strategy=_run_strategy(vm, facts),
        state_change_requests=pending(vm, vmi),
        start_failure=failed,
        conditions=conditions(vm, facts, now),
        printable_status=printable_status(
            Seen(
                vm=vm,
                vmi=vmi,
                disks=facts.disks,
                start_failure=failed,
                stopping=facts.plan.delete,
                starting=facts.plan.create and facts.refused is None,
            )
        ),
    )
    if vmi is not None and (made_from := generation(vmi)):
        told.observed_generation, told.desired_generation = made_from, vm.metadata.generation
    return told


def generation(vmi: VirtualMachineInstance) -> int:
    """The generation that a machine is as; 0 for one that does not say it."""
    text = vmi.metadata.annotations.get(GENERATION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def change(old: VirtualMachineStatus, new: VirtualMachineStatus) -> Document:
    """The merge patch from one status to the other; empty when they say the same."""
    return difference(msgspec.to_builtins(old), msgspec.to_builtins(new))


def _run_strategy(vm: VirtualMachine, facts: Facts) -> str:
    """The strategy that was last acted upon; nothing before the first machine was made.

    A machine that could not be made is still to be made: by what stands here RerunOnFailure sees
    whether it has begun.
    """
    known, wanted = vm.status.run_strategy, vm.spec.strategy
    if facts.vmi is not None:
        return wanted
    is_due = facts.plan.create or facts.plan.wait_seconds > 0
    return wanted if known and not is_due else known


# ------------------------------------------------------------------ conditions


def conditions(vm: VirtualMachine, facts: Facts, now: datetime) -> list[Condition]:
    """The conditions that hold.  Those of a machine that is gone stay as they were (KubeVirt)."""
    old = vm.status.conditions
    told = [_ready(facts.vmi, now)]
    if facts.refused is not None:
        told.append(_true(FAILURE, facts.refused.message, now, reason=facts.refused.reason))
    if facts.restart:
        told.append(_true(RESTART_REQUIRED, facts.restart, now))
    if facts.vmi is None:
        told += [each for each in old if each.type not in OWN]
    else:
        told += [each for each in facts.vmi.status.conditions if each.type not in OWN]
    return _merged(old, told)


def _merged(old: Sequence[Condition], told: Sequence[Condition]) -> list[Condition]:
    """What is told, in the order in which it was told first.

    A condition is replaced only when its status or reason turns, as KubeVirt does: its message and
    its times may be those of an earlier moment.
    """
    new = {each.type: each for each in told}
    kept = [
        each if _says_the_same(each, new[each.type]) else new[each.type]
        for each in old
        if each.type in new
    ]
    known = {each.type for each in old}
    return kept + [each for each in told if each.type not in known]


def _says_the_same(one: Condition, other: Condition) -> bool:
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
