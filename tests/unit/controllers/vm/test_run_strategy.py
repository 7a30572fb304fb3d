"""Every run strategy, with and without a VMI, with and without requests (VM:970-1177)."""

from datetime import timedelta

import pytest
from tests.unit.controllers.vm.make import NOW, STRATEGIES, start, stop, vm, vmi

from corral.api.time import rfc3339
from corral.controllers.vm.run_strategy import NOTHING, Plan, is_set_to_start, plan
from corral.controllers.vm.state_change_requests import pending

CREATE, DELETE = Plan(create=True), Plan(delete=True)
RERUN = Plan(delete=True, request_start=True)
BECOME_ALWAYS = Plan(set_always=True)


@pytest.mark.parametrize(
    ("strategy", "absent", "running", "succeeded", "failed"),
    [
        ("Always", CREATE, NOTHING, DELETE, DELETE),
        (True, CREATE, NOTHING, DELETE, DELETE),
        ("RerunOnFailure", CREATE, NOTHING, DELETE, RERUN),
        ("Manual", NOTHING, NOTHING, NOTHING, NOTHING),
        ("Halted", NOTHING, DELETE, DELETE, DELETE),
        (False, NOTHING, DELETE, DELETE, DELETE),
        ("Once", CREATE, NOTHING, NOTHING, NOTHING),
    ],
)
def test_actions_of_run_strategies_without_requests(strategy, absent, running, succeeded, failed):
    one = vm(strategy)
    assert plan(one, None, NOW) == absent
    assert plan(one, vmi("Running"), NOW) == running
    assert plan(one, vmi("Scheduling"), NOW) == running
    assert plan(one, vmi("Succeeded"), NOW) == succeeded
    assert plan(one, vmi("Failed"), NOW) == failed


@pytest.mark.parametrize("strategy", [*STRATEGIES, True, False])
@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_terminating_vmi_is_awaited(strategy, phase):
    one = vmi(phase, going=True)
    assert plan(vm(strategy, requests=(stop(one), start())), one, NOW) == NOTHING


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("Always", DELETE),
        ("RerunOnFailure", DELETE),
        ("Manual", DELETE),
        ("Halted", DELETE),
        ("Once", NOTHING),
    ],
)
@pytest.mark.parametrize("rest", [(), (start(),)])
def test_a_stop_request_applies_to_the_vmi_that_it_names(strategy, expected, rest):
    one = vmi("Running")
    assert plan(vm(strategy, requests=(stop(one), *rest)), one, NOW) == expected
    other = vm(strategy, requests=(stop("another"), *rest))
    assert plan(other, one, NOW) == (DELETE if strategy == "Halted" else NOTHING)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("Always", CREATE),
        ("RerunOnFailure", CREATE),
        ("Manual", CREATE),
        ("Halted", NOTHING),
        (False, NOTHING),
        ("Once", CREATE),
    ],
)
def test_a_start_request_creates_a_vmi_if_there_is_none(strategy, expected):
    assert plan(vm(strategy, requests=(start(),)), None, NOW) == expected


@pytest.mark.parametrize("strategy", ["Halted", False])
def test_a_halted_vm_started_paused_stays_started(strategy):
    one = vm(strategy, requests=(start(paused="true"),))
    assert plan(one, None, NOW) == BECOME_ALWAYS
    assert len(pending(one, None)) == 1


def test_a_start_request_from_before_the_halt_is_dropped():
    assert pending(vm("Halted", requests=(start(),)), None) == []


def test_a_start_request_waits_for_the_stop_before_it():
    assert plan(vm("Manual", requests=(stop("gone"), start())), None, NOW) == NOTHING


def test_a_vm_switched_to_rerun_on_failure_starts_once():
    assert plan(vm("RerunOnFailure", acted="Halted"), None, NOW) == CREATE
    assert plan(vm("RerunOnFailure", acted=""), None, NOW) == CREATE
    assert plan(vm("RerunOnFailure", acted="RerunOnFailure"), None, NOW) == NOTHING


def test_a_stopped_vmi_that_failed_is_not_recreated():
    failed = vmi("Failed")
    assert plan(vm("RerunOnFailure", requests=(stop(failed),)), failed, NOW) == DELETE


def test_a_recorded_start_is_not_recorded_again():
    assert plan(vm("RerunOnFailure", requests=(start(),)), vmi("Failed"), NOW) == DELETE


@pytest.mark.parametrize("strategy", ["Always", "Once", "RerunOnFailure"])
def test_start_failures_delay_the_next_vmi(strategy):
    retry = rfc3339(NOW + timedelta(seconds=25))
    failure = {"consecutiveFailCount": 2, "retryAfterTimestamp": retry}
    one = vm(strategy, failure=failure)
    assert plan(one, None, NOW) == Plan(wait_seconds=25)
    assert plan(one, None, NOW + timedelta(seconds=24.5)) == Plan(wait_seconds=0.5)
    assert plan(one, None, NOW + timedelta(seconds=25)) == CREATE


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_terminating_vm_deletes_its_vmi_and_creates_no_other(strategy):
    one = vm(strategy, going=True, requests=(start(),))
    assert plan(one, None, NOW) == NOTHING
    assert plan(one, vmi("Running"), NOW) == DELETE
    assert plan(one, vmi("Running", going=True), NOW) == NOTHING


# --------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("phase", "going", "kept"),
    [
        ("Pending", False, 0),
        ("Running", False, 0),
        ("Running", True, 1),
        ("Succeeded", False, 1),
        ("Failed", False, 1),
    ],
)
def test_a_start_request_is_done_once_there_is_a_vmi(phase, going, kept):
    assert len(pending(vm(requests=(start(),)), vmi(phase, going=going))) == kept


def test_a_start_request_is_not_done_without_a_vmi():
    assert len(pending(vm(requests=(start(),)), None)) == 1


def test_a_stop_request_is_done_once_its_vmi_is_gone():
    one = vmi("Running")
    assert len(pending(vm(requests=(stop(one), start())), one)) == 2
    left = pending(vm(requests=(stop(one), start())), None)
    assert [each.action for each in left] == ["Start"]
    assert pending(vm(requests=(stop(one),)), vmi("Running")) == []


def test_a_stop_request_without_a_uid_is_dropped():
    assert pending(vm(requests=({"action": "Stop"},)), vmi("Running")) == []


# ------------------------------------------------------------- whether it starts


@pytest.mark.parametrize(
    ("strategy", "absent", "running", "succeeded"),
    [
        ("Always", True, True, True),
        ("Halted", False, False, False),
        ("Manual", False, True, True),
        ("RerunOnFailure", True, True, False),
        ("Once", True, False, False),
    ],
)
def test_is_set_to_start_by_run_strategy(strategy, absent, running, succeeded):
    one = vm(strategy)
    assert is_set_to_start(one, None) is absent
    assert is_set_to_start(one, vmi("Running")) is running
    assert is_set_to_start(one, vmi("Succeeded")) is succeeded


def test_a_manual_vm_is_set_to_start_by_its_requests():
    one = vmi("Running")
    assert is_set_to_start(vm("Manual", requests=(start(),)), None)
    assert not is_set_to_start(vm("Manual", requests=(stop(one),)), one)
