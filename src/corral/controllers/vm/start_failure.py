"""Back-off for VMIs that end before they ran (KubeVirt's vm.go). Pure."""

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
from corral.controllers.vm.state_change_requests import is_stop_requested

FIRST_SECONDS = 10
MAX_SECONDS = 300
RESTARTING = frozenset({ALWAYS, RERUN_ON_FAILURE, ONCE})
"""Run strategies that create a VMI without a request for each start."""

RandomBelow = Callable[[int], int]
"""Returns a random number from 0 up to, not including, the argument."""


def delay_seconds(count: int, random_below: RandomBelow) -> int:
    """Return the delay after so many failures in a row: 10 s, 40 s, 90 s and so on.

    Up to half as much is added at random, so that VMIs that failed together do not start together.
    """
    delay = FIRST_SECONDS * max(count, 1) ** 2
    return min(delay + random_below(delay // 2 + 1), MAX_SECONDS)


def failed_early(vmi: VirtualMachineInstance | None) -> bool:
    """Report whether a VMI ended before it ran."""
    return vmi is not None and vmi.is_final and not has_run(vmi)


def has_run(vmi: VirtualMachineInstance) -> bool:
    return any(each.phase == "Running" for each in vmi.status.phase_transition_timestamps)


def start_failure(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, random_below: RandomBelow
) -> StartFailure | None:
    """Return the failures so far, with that of ``vmi``; None once a VMI ran.

    None also where the run strategy restarts nothing. Each VMI counts once; one that was stopped on
    request did not fail.
    """
    if vm.spec.strategy not in RESTARTING or (vmi is not None and has_run(vmi)):
        return None
    old = vm.status.start_failure
    if vmi is None or not failed_early(vmi) or is_stop_requested(vm, vmi):
        return old
    if old is not None and old.last_failed_vmi_uid == vmi.metadata.uid:
        return old
    count = 1 if old is None else old.consecutive_fail_count + 1
    # Rounded up: API times have whole seconds, and the delay must not get shorter.
    begins = now + timedelta(seconds=1) if now.microsecond else now
    retry = begins + timedelta(seconds=delay_seconds(count, random_below))
    return StartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=rfc3339(retry),
    )


def seconds_left(vm: VirtualMachine, now: datetime) -> float:
    """Return how long no VMI may be created; 0 when one may be."""
    failure = vm.status.start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return 0.0
    try:
        retry = parse_rfc3339(failure.retry_after_timestamp)
    except ValueError:  # the CRD schema does not check the format
        return 0.0
    # Capped: a clock that was set back must not prolong the back-off.
    return min(max(0.0, (retry - now).total_seconds()), float(MAX_SECONDS))
