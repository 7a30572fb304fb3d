"""A VirtualMachine's state in one word: the first that fits (vm.go, setPrintableStatus).  Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from corral.api.kinds.kubevirt.virtualmachine import StartFailure, VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition
from corral.controllers.vm.disks import Disks
from corral.controllers.vm.run_strategy import is_set_to_start
from corral.controllers.vm.start_failure import RESTARTING
from corral.reconcile.objects import is_being_deleted

UNKNOWN = "Unknown"
_STARTING = frozenset({"", "Pending", "Scheduling", "Scheduled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the word depends on."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None
    disks: Disks
    start_failure: StartFailure | None
    stopping: bool
    """The machine was just deleted, which the cache may not show yet."""
    starting: bool
    """A machine is to be made now, where there is none."""

    @property
    def phase(self) -> str | None:
        """The machine's phase; None without a machine."""
        return None if self.vmi is None else self.vmi.status.phase

    def condition(self, name: str) -> Condition | None:
        """A condition of the machine."""
        conditions = () if self.vmi is None else self.vmi.status.conditions
        return next((each for each in conditions if each.type == name), None)

    def is_false(self, name: str, reason: str) -> bool:
        """Whether a condition of the machine is False for this reason."""
        found = self.condition(name)
        return found is not None and (found.status, found.reason) == ("False", reason)


def printable_status(seen: Seen) -> str:
    """The word."""
    return next((word for word, fits in WORDS if fits(seen)), UNKNOWN)


def _stopping(seen: Seen) -> bool:
    vmi = seen.vmi
    return vmi is not None and not vmi.is_final and (is_being_deleted(vmi) or seen.stopping)


def _starting(seen: Seen) -> bool:
    return seen.starting if seen.vmi is None else seen.phase in _STARTING


def _migrating(seen: Seen) -> bool:
    state = None if seen.vmi is None else seen.vmi.status.migration_state
    return state is not None and not state.completed


def _is_paused(seen: Seen) -> bool:
    found = seen.condition("Paused")
    return found is not None and found.status == "True"


def _waiting_for_binding(seen: Seen) -> bool:
    return seen.disks.unbound and is_set_to_start(seen.vm, seen.vmi)


def _crash_loop(seen: Seen) -> bool:
    if seen.vmi is not None and not seen.vmi.is_final:
        return False
    return seen.start_failure is not None and seen.vm.spec.strategy in RESTARTING


WORDS: tuple[tuple[str, Callable[[Seen], bool]], ...] = (
    ("Terminating", lambda seen: is_being_deleted(seen.vm)),
    ("Stopping", _stopping),
    ("Migrating", _migrating),
    ("Paused", lambda seen: seen.phase == "Running" and _is_paused(seen)),
    ("Running", lambda seen: seen.phase == "Running"),
    ("ErrorPvcNotFound", lambda seen: seen.is_false("Synchronized", "FailedPvcNotFound")),
    ("DataVolumeError", lambda seen: seen.disks.failed),
    ("ErrorUnschedulable", lambda seen: seen.is_false("PodScheduled", "Unschedulable")),
    ("Provisioning", lambda seen: seen.disks.provisioning),
    ("WaitingForVolumeBinding", _waiting_for_binding),
    ("ErrImagePull", lambda seen: seen.is_false("Synchronized", "ErrImagePull")),
    ("ImagePullBackOff", lambda seen: seen.is_false("Synchronized", "ImagePullBackOff")),
    ("Starting", _starting),
    ("CrashLoopBackOff", _crash_loop),
    ("Stopped", lambda seen: seen.vmi is None or seen.vmi.is_final),
)
"""In this order; KubeVirt's WaitingForReceiver is for VirtualMachines that come from elsewhere."""
