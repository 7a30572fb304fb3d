"""What is said of a VirtualMachine: fields and conditions (VM:2709-2790)."""

import msgspec
import pytest
from tests.unit.controllers.vm.make import NOW, STRATEGIES, start, stop, vm, vmi

from corral.api.kinds.kubevirt.virtualmachine import StartFailure
from corral.controllers.vm.disks import Disks
from corral.controllers.vm.errors import Refused
from corral.controllers.vm.run_strategy import NOTHING, Plan
from corral.controllers.vm.status import StatusInputs, status_of, status_patch

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}
AGENT = {"type": "AgentConnected", "status": "True"}


def new_status(one, new_vmi=None, *, decided=NOTHING, refused=None, restart=""):
    inputs = StatusInputs(
        vmi=new_vmi, plan=decided, disks=Disks(), refused=refused, restart=restart
    )
    return status_of(one, inputs, NOW, lambda _: 0)


def condition(status, name):
    found = [each for each in status.conditions if each.type == name]
    return found[0] if found else None


def test_the_status_of_a_vm_without_a_vmi():
    status = new_status(vm("Halted"))
    assert (status.created, status.ready, status.printable_status) == (False, False, "Stopped")
    ready = condition(status, "Ready")
    assert (ready.status, ready.reason, ready.message) == (
        "False",
        "VMINotExists",
        "VMI does not exist",
    )
    assert status.run_strategy == ""
    assert (status.observed_generation, status.desired_generation) == (0, 0)


def test_ready_is_that_of_the_vmi():
    status = new_status(vm(), vmi(conditions=[READY]))
    assert (status.created, status.ready) == (True, True)
    assert condition(status, "Ready").last_transition_time == READY["lastTransitionTime"]
    missing = condition(new_status(vm(), vmi(conditions=[])), "Ready")
    assert (missing.status, missing.reason) == ("False", "VMIConditionMissing")


def test_generations_are_reported_while_there_is_a_vmi():
    new_vmi = vmi()
    new_vmi.metadata.annotations["kubevirt.io/vm-generation"] = "3"
    status = new_status(vm(generation=5), new_vmi)
    assert (status.observed_generation, status.desired_generation) == (3, 5)
    new_vmi.metadata.annotations["kubevirt.io/vm-generation"] = "three"
    status = new_status(vm(generation=5), new_vmi)
    assert (status.observed_generation, status.desired_generation) == (0, 0)


def test_conditions_of_the_vmi_are_copied_and_removed_with_it():
    with_agent = new_status(vm(), vmi(conditions=[READY, AGENT]))
    assert condition(with_agent, "AgentConnected").status == "True"
    before = vm(conditions=(READY, AGENT))
    assert condition(new_status(before, vmi(conditions=[READY])), "AgentConnected") is None


def test_conditions_of_a_deleted_vmi_stay_unchanged():
    status = new_status(vm(conditions=(READY, AGENT)))
    assert condition(status, "AgentConnected").status == "True"
    assert condition(status, "Ready").reason == "VMINotExists"


def test_transition_times_change_with_status_or_reason_only():
    old = {"type": "Synchronized", "status": "False", "reason": "ErrImagePull", "message": "first"}
    new = {**old, "message": "second"}
    other = {**old, "reason": "ImagePullBackOff", "message": "third"}
    before = vm(conditions=(old,))
    assert condition(new_status(before, vmi(conditions=[new])), "Synchronized").message == "first"
    assert condition(new_status(before, vmi(conditions=[other])), "Synchronized").message == "third"


def test_a_rejected_creation_is_a_failure_until_it_succeeds():
    refused = Refused("FailedCreate", "Failure while starting VMI: no")
    failure = condition(new_status(vm(), refused=refused), "Failure")
    assert (failure.status, failure.reason, failure.message) == (
        "True",
        "FailedCreate",
        "Failure while starting VMI: no",
    )
    after = vm(conditions=({"type": "Failure", "status": "True", "reason": "FailedCreate"},))
    assert condition(new_status(after), "Failure") is None


def test_restart_required_has_the_latest_reason():
    one = vm(conditions=({"type": "RestartRequired", "status": "True", "message": "first"},))
    assert (
        condition(new_status(one, vmi(), restart="second"), "RestartRequired").message == "second"
    )
    assert condition(new_status(one, vmi()), "RestartRequired") is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_run_strategy_is_reported_once_a_vmi_was_created(strategy):
    assert new_status(vm(strategy)).run_strategy == ""
    assert new_status(vm(strategy), vmi()).run_strategy == strategy
    before = "Halted" if strategy != "Halted" else "Manual"
    assert new_status(vm(strategy, acted=before)).run_strategy == strategy


def test_a_run_strategy_without_effect_is_not_reported():
    one = vm("RerunOnFailure", acted="Halted")
    assert new_status(one, decided=Plan(create=True)).run_strategy == "Halted"
    assert new_status(one, decided=Plan(wait_seconds=3)).run_strategy == "Halted"


def test_fulfilled_requests_are_removed():
    new_vmi = vmi()
    status = new_status(vm("Manual", requests=(stop("gone"), start())), new_vmi)
    assert [each.action for each in status.state_change_requests] == ["Start"]


def test_only_changed_fields_are_written():
    one = vm()
    status = new_status(one, vmi(conditions=[READY]))
    written = status_patch(one.status, status)
    assert written["created"] is True
    assert "volumeRequests" not in written
    assert status_patch(status, status) == {}


def test_fields_that_are_gone_are_removed():
    failure = {"consecutiveFailCount": 1, "lastFailedVMIUID": "x"}
    before = vm(failure=failure, requests=(start(),))
    after = status_patch(before.status, new_status(before, vmi()))
    assert after["startFailure"] is None
    assert after["stateChangeRequests"] is None
    assert msgspec.json.encode(after)


def test_parts_of_fields_that_are_gone_are_removed():
    failure = {"consecutiveFailCount": 1, "retryAfterTimestamp": "2026-01-01T01:00:00Z"}
    before = vm(failure=failure).status
    after = msgspec.structs.replace(before, start_failure=StartFailure(consecutive_fail_count=2))
    taken = {"consecutiveFailCount": 2, "retryAfterTimestamp": None}
    assert status_patch(before, after) == {"startFailure": taken}
