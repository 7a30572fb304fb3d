"""Machines that end before they ran are made again later and later (KubeVirt's vm.go).  Pure."""

from collections.abc import Callable
from datetime import datetime, timedelta

from corral.api.kinds.kubevirt.virtualmachine import (
    ALWAYS,
    ONCE,
    RERUN_ON_FAILURE,
    StartFailure,
    VirtualMachine,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import parse_rfc3339, rfc3339
from corral.controllers.vm.state_change_requests import stop_asked

FIRST_SECONDS = 10
LONGEST_SECONDS = 300
RESTARTING = frozenset({ALWAYS, RERUN_ON_FAILURE, ONCE})
"""Run strategies that make a machine without being told to each time."""

Dice = Callable[[int], int]
"""A number from 0 up to, not including, the argument."""


def delay_seconds(count: int, dice: Dice) -> int:
    """How long to wait after so many failures in a row: 10 s, 40 s, 90 s and so on.

    Up to half as much comes on top of it, so that machines that failed together do not start
    together.
    """
    delay = FIRST_SECONDS * max(count, 1) ** 2
    return min(delay + dice(delay // 2 + 1), LONGEST_SECONDS)


def failed_early(vmi: VirtualMachineInstance | None) -> bool:
    """Whether a machine ended before it ran."""
    return vmi is not None and vmi.is_final and not has_run(vmi)


def has_run(vmi: VirtualMachineInstance) -> bool:
    return any(each.phase == "Running" for each in vmi.status.phase_transition_timestamps)


def start_failure(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, dice: Dice
) -> StartFailure | None:
    """The failures so far, with that of ``vmi``; None once a machine ran, or none is made again.

    Each machine counts once.  One that was told to stop did not fail.
    """
    if vm.spec.strategy not in RESTARTING or (vmi is not None and has_run(vmi)):
        return None
    known = vm.status.start_failure
    if vmi is None or not failed_early(vmi) or stop_asked(vm, vmi):
        return known
    if known is not None and known.last_failed_vmi_uid == vmi.metadata.uid:
        return known
    count = 1 if known is None else known.consecutive_fail_count + 1
    # Rounded up: a time in the API has whole seconds, and the wait is not to be shorter.
    begins = now + timedelta(seconds=1) if now.microsecond else now
    retry = begins + timedelta(seconds=delay_seconds(count, dice))
    return StartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=rfc3339(retry),
    )


def seconds_left(vm: VirtualMachine, now: datetime) -> float:
    """How long no machine is made yet; 0 when one may be."""
    failure = vm.status.start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return 0.0
    try:
        retry = parse_rfc3339(failure.retry_after_timestamp)
    except ValueError:  # the schema does not check a time's form
        return 0.0
    # A clock that was set back holds nothing back for longer than is ever waited.
    return min(max(0.0, (retry - now).total_seconds()), float(LONGEST_SECONDS))
