"""Which VirtualMachines of a pool do not come up, and are made anew.  Pure.

KubeVirt looks at every VirtualMachine of the namespace, and while the pool is paused too; here it
is the pool's own, and a paused pool leaves them alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from corral.api.kinds.kubevirt.pool import Autohealing, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.time import parse_duration, parse_rfc3339
from corral.controllers.pool.scale_plan import is_leaving

FAILURES = 3
"""Failed starts in a row after which a VirtualMachine is made anew, unless the pool says."""
LONGEST = "5m"
"""How long a VirtualMachine may fail to start, unless the pool says."""
SHOWN_SECONDS = 5.0
"""How long one that has failed too often stays, for others to see why it goes: KubeVirt's
controller rests between two looks, and takes as long by itself."""
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
"""Printable statuses of VirtualMachines that do not come up."""


@dataclass(frozen=True, slots=True)
class Healing:
    """The VirtualMachines to make anew, and when to look again: 0 where nobody is failing."""

    sick: tuple[VirtualMachine, ...] = ()
    seconds: float = 0.0


def plan(pool: VirtualMachinePool, owned: Sequence[VirtualMachine], now: datetime) -> Healing:
    """Which VirtualMachines have failed for too long, or too often."""
    wish = pool.spec.autohealing
    if wish is None:
        return Healing()
    waits = {vm.metadata.name: _seconds_left(wish, vm, now) for vm in owned if not is_leaving(vm)}
    known = {name: seconds for name, seconds in waits.items() if seconds is not None}
    later = [seconds for seconds in known.values() if seconds > 0]
    sick = tuple(vm for vm in owned if known.get(vm.metadata.name, 1) <= 0)
    return Healing(sick, min(later, default=0.0))


def _seconds_left(wish: Autohealing, vm: VirtualMachine, now: datetime) -> float | None:
    """How long a VirtualMachine may go on failing; None for one that does not fail."""
    failure, since = vm.status.start_failure, _failing_since(vm)
    threshold = wish.start_up_failure_threshold or FAILURES
    if failure is not None and failure.consecutive_fail_count >= threshold:
        longest = SHOWN_SECONDS
    elif vm.status.printable_status not in FAILING or since is None:
        return None
    else:
        longest = parse_duration(wish.min_failing_to_start_duration or LONGEST)
    return 0.0 if since is None else max(0.0, longest - (now - since).total_seconds())


def _failing_since(vm: VirtualMachine) -> datetime | None:
    """When a VirtualMachine became not ready."""
    for condition in vm.status.conditions:
        if condition.type == "Ready" and condition.status == "False":
            moment = condition.last_probe_time or condition.last_transition_time
            return parse_rfc3339(moment) if moment else None
    return None
