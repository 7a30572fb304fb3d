"""One word for all of it: each, and which of two comes first (VM:2524-2707)."""

import itertools

import pytest
from tests.unit.controllers.vm.make import start, vm, vmi

from corral.api.kinds.kubevirt.virtualmachine import StartFailure
from corral.api.kinds.vmi.status import MigrationState
from corral.controllers.vm.disks import Disks
from corral.controllers.vm.printable_status import STATUSES, PrintableInputs, printable_status


def condition(name, status, reason=""):
    return {"type": name, "status": status, "reason": reason}


def word(one=None, new_vmi=None, *, disks=None, failures=0, stopping=False, starting=False):
    return printable_status(
        PrintableInputs(
            vm=one or vm(),
            vmi=new_vmi,
            disks=disks or Disks(),
            start_failure=StartFailure(consecutive_fail_count=failures) if failures else None,
            stopping=stopping,
            starting=starting,
        )
    )


def migrating(phase="Running", **fields):
    found = vmi(phase, **fields)
    found.status.migration_state = MigrationState()
    return found


PAUSED = [condition("Paused", "True")]
PVC = condition("Synchronized", "False", "FailedPvcNotFound")
PULL = condition("Synchronized", "False", "ErrImagePull")
BACK_OFF = condition("Synchronized", "False", "ImagePullBackOff")
UNPLACED = condition("PodScheduled", "False", "Unschedulable")


@pytest.mark.parametrize(
    ("new_status", "expected"),
    [
        (word(vm(going=True), vmi()), "Terminating"),
        (word(vm(going=True)), "Terminating"),
        (word(new_vmi=vmi(going=True)), "Stopping"),
        (word(new_vmi=vmi("Pending", going=True)), "Stopping"),
        (word(new_vmi=vmi(), stopping=True), "Stopping"),
        (word(new_vmi=vmi("Succeeded", going=True)), "Stopped"),
        (word(new_vmi=migrating()), "Migrating"),
        (word(new_vmi=vmi(conditions=PAUSED)), "Paused"),
        (word(new_vmi=vmi(conditions=[condition("Paused", "False")])), "Running"),
        (word(new_vmi=vmi()), "Running"),
        (word(new_vmi=vmi("Pending", conditions=[PVC])), "ErrorPvcNotFound"),
        (word(disks=Disks(failed=True)), "DataVolumeError"),
        (word(new_vmi=vmi("Scheduling", conditions=[UNPLACED])), "ErrorUnschedulable"),
        (word(disks=Disks(provisioning=True)), "Provisioning"),
        (word(vm("Halted"), disks=Disks(provisioning=True)), "Provisioning"),
        (word(disks=Disks(unbound=True)), "WaitingForVolumeBinding"),
        (word(vm("Halted"), disks=Disks(unbound=True)), "Stopped"),
        (word(vm("Manual"), disks=Disks(unbound=True)), "Stopped"),
        (
            word(vm("Manual", requests=(start(),)), disks=Disks(unbound=True)),
            "WaitingForVolumeBinding",
        ),
        (word(new_vmi=vmi("Scheduling", conditions=[PULL])), "ErrImagePull"),
        (word(new_vmi=vmi("Scheduling", conditions=[BACK_OFF])), "ImagePullBackOff"),
        (word(new_vmi=vmi("")), "Starting"),
        (word(new_vmi=vmi("Pending")), "Starting"),
        (word(new_vmi=vmi("Scheduling")), "Starting"),
        (word(new_vmi=vmi("Scheduled")), "Starting"),
        (word(starting=True), "Starting"),
        (word(starting=True, disks=Disks(provisioning=True)), "Provisioning"),
        (word(failures=1), "CrashLoopBackOff"),
        (word(vm("RerunOnFailure"), failures=1), "CrashLoopBackOff"),
        (word(vm("Once"), vmi("Failed"), failures=1), "CrashLoopBackOff"),
        (word(vm("Manual"), vmi("Failed"), failures=1), "Stopped"),
        (word(new_vmi=vmi("Pending"), failures=1), "Starting"),
        (word(), "Stopped"),
        (word(new_vmi=vmi("Succeeded")), "Stopped"),
        (word(new_vmi=vmi("Failed")), "Stopped"),
        (word(new_vmi=vmi("Unknown")), "Unknown"),
    ],
)
def test_each_state_has_its_printable_status(new_status, expected):
    assert new_status == expected


PARTS = {
    "Terminating": {"one": vm(going=True)},
    "Stopping": {"stopping": True},
    "Migrating": {"migrates": True},
    "Paused": {"phase": "Running", "conditions": PAUSED},
    "Running": {"phase": "Running"},
    "ErrorPvcNotFound": {"conditions": [PVC]},
    "DataVolumeError": {"disks": ["failed"]},
    "ErrorUnschedulable": {"conditions": [UNPLACED]},
    "Provisioning": {"disks": ["provisioning"]},
    "WaitingForVolumeBinding": {"disks": ["unbound"]},
    "ErrImagePull": {"conditions": [PULL]},
    "Starting": {"phase": "Scheduling"},
}
"""What brings each word about, as far as it goes together with others in one machine."""


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(PARTS, 2)])
def test_of_two_states_the_earlier_one_is_shown(first, second):
    both = (PARTS[first], PARTS[second])
    phase = next((part["phase"] for part in both if "phase" in part), "Scheduling")
    conditions = [each for part in both for each in part.get("conditions", ())]
    by_type = {each["type"]: each for each in reversed(conditions)}
    make = migrating if any(part.get("migrates") for part in both) else vmi
    new_status = word(
        next((part["one"] for part in both if "one" in part), None),
        make(phase, conditions=list(by_type.values())),
        disks=Disks(**{name: True for part in both for name in part.get("disks", ())}),
        stopping=any(part.get("stopping") for part in both),
    )
    assert new_status == first


def test_the_order_of_states_is_kubevirts():
    assert [name for name, _ in STATUSES] == [
        "Terminating", "Stopping", "Migrating", "Paused", "Running", "ErrorPvcNotFound",
        "DataVolumeError", "ErrorUnschedulable", "Provisioning", "WaitingForVolumeBinding",
        "ErrImagePull", "ImagePullBackOff", "Starting", "CrashLoopBackOff", "Stopped",
    ]  # fmt: skip
