"""``status.printableStatus``: the first row that applies (vm.go, setPrintableStatus). Pure."""

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
class PrintableInputs:
    """Inputs of the printable status."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None
    disks: Disks
    start_failure: StartFailure | None
    stopping: bool
    """The VMI was just deleted, which the cache may not show yet."""
    starting: bool
    """A VMI is to be created, or was just created."""

    @property
    def phase(self) -> str | None:
        """Return the phase of the VMI; None without a VMI."""
        return None if self.vmi is None else self.vmi.status.phase

    def condition(self, name: str) -> Condition | None:
        """Return a condition of the VMI."""
        conditions = () if self.vmi is None else self.vmi.status.conditions
        return next((each for each in conditions if each.type == name), None)

    def is_false(self, name: str, reason: str) -> bool:
        """Report whether a condition of the VMI is False for this reason."""
        found = self.condition(name)
        return found is not None and (found.status, found.reason) == ("False", reason)


def printable_status(inputs: PrintableInputs) -> str:
    return next((status for status, fits in STATUSES if fits(inputs)), UNKNOWN)


def _stopping(inputs: PrintableInputs) -> bool:
    vmi = inputs.vmi
    return vmi is not None and not vmi.is_final and (is_being_deleted(vmi) or inputs.stopping)


def _starting(inputs: PrintableInputs) -> bool:
    return inputs.starting if inputs.vmi is None else inputs.phase in _STARTING


def _migrating(inputs: PrintableInputs) -> bool:
    return inputs.vmi is not None and inputs.vmi.is_migrating


def _is_paused(inputs: PrintableInputs) -> bool:
    found = inputs.condition("Paused")
    return found is not None and found.status == "True"


def _waiting_for_binding(inputs: PrintableInputs) -> bool:
    return inputs.disks.unbound and is_set_to_start(inputs.vm, inputs.vmi)


def _crash_loop(inputs: PrintableInputs) -> bool:
    if inputs.vmi is not None and not inputs.vmi.is_final:
        return False
    return inputs.start_failure is not None and inputs.vm.spec.strategy in RESTARTING


STATUSES: tuple[tuple[str, Callable[[PrintableInputs], bool]], ...] = (
    ("Terminating", lambda inputs: is_being_deleted(inputs.vm)),
    ("Stopping", _stopping),
    ("Migrating", _migrating),
    ("Paused", lambda inputs: inputs.phase == "Running" and _is_paused(inputs)),
    ("Running", lambda inputs: inputs.phase == "Running"),
    ("ErrorPvcNotFound", lambda inputs: inputs.is_false("Synchronized", "FailedPvcNotFound")),
    ("DataVolumeError", lambda inputs: inputs.disks.failed),
    ("ErrorUnschedulable", lambda inputs: inputs.is_false("PodScheduled", "Unschedulable")),
    ("Provisioning", lambda inputs: inputs.disks.provisioning),
    ("WaitingForVolumeBinding", _waiting_for_binding),
    ("ErrImagePull", lambda inputs: inputs.is_false("Synchronized", "ErrImagePull")),
    ("ImagePullBackOff", lambda inputs: inputs.is_false("Synchronized", "ImagePullBackOff")),
    ("Starting", _starting),
    ("CrashLoopBackOff", _crash_loop),
    ("Stopped", lambda inputs: inputs.vmi is None or inputs.vmi.is_final),
)
"""In KubeVirt's order, without WaitingForReceiver: nothing migrates here from elsewhere."""
