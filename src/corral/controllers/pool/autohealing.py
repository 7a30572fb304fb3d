"""Selects VirtualMachines of a pool that fail to start, to be recreated. Pure.

KubeVirt checks every VirtualMachine of the namespace, also while the pool is paused; here only
those of the pool are checked, and a paused pool heals nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from corral.api.kinds.kubevirt.pool import Autohealing, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.time import parse_duration, parse_rfc3339
from corral.controllers.pool.scale_plan import is_leaving

DEFAULT_THRESHOLD = 3
"""Default of ``startUpFailureThreshold``: consecutive failed starts."""
DEFAULT_DURATION = "5m"
"""Default of ``minFailingToStartDuration``."""
MIN_VISIBLE_SECONDS = 5.0
"""Minimum time that a failure stays visible before its VirtualMachine is deleted; KubeVirt's
controller takes as long between two syncs."""
FAILING = frozenset(
    {
        "CrashLoopBackOff",
        "ErrorUnschedulable",
        "DataVolumeError",
        "ErrorPvcNotFound",
        "ErrImagePull",
        "ImagePullBackOff",
    }
)
"""Printable statuses of VirtualMachines that fail to start."""


@dataclass(frozen=True, slots=True)
class Healing:
    """VirtualMachines to recreate, and when to check again: 0 where none is failing."""

    failed: tuple[VirtualMachine, ...] = ()
    seconds: float = 0.0


def plan(pool: VirtualMachinePool, owned: Sequence[VirtualMachine], now: datetime) -> Healing:
    """Return the VirtualMachines that have failed for too long, or too often."""
    options = pool.spec.autohealing
    if options is None:
        return Healing()
    seconds_left = {
        vm.metadata.name: seconds
        for vm in owned
        if not is_leaving(vm) and (seconds := _seconds_left(options, vm, now)) is not None
    }
    later = [seconds for seconds in seconds_left.values() if seconds > 0]
    failed = tuple(vm for vm in owned if seconds_left.get(vm.metadata.name, 1) <= 0)
    return Healing(failed, min(later, default=0.0))


def _seconds_left(options: Autohealing, vm: VirtualMachine, now: datetime) -> float | None:
    """Return how long a VirtualMachine may go on failing; None if it does not fail."""
    failure, since = vm.status.start_failure, _failing_since(vm)
    threshold = options.start_up_failure_threshold or DEFAULT_THRESHOLD
    if failure is not None and failure.consecutive_fail_count >= threshold:
        limit = MIN_VISIBLE_SECONDS
    elif vm.status.printable_status not in FAILING or since is None:
        return None
    else:
        limit = parse_duration(options.min_failing_to_start_duration or DEFAULT_DURATION)
    return 0.0 if since is None else max(0.0, limit - (now - since).total_seconds())


def _failing_since(vm: VirtualMachine) -> datetime | None:
    """Return since when a VirtualMachine is not ready."""
    for condition in vm.status.conditions:
        if condition.type == "Ready" and condition.status == "False":
            moment = condition.last_probe_time or condition.last_transition_time
            return parse_rfc3339(moment) if moment else None
    return None
