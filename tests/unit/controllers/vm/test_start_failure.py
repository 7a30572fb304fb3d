"""Machines that end before they ran, and how long the next one waits (VM:1484-1611)."""

from datetime import timedelta

import pytest
from tests.unit.controllers.vm.make import NOW, STRATEGIES, stop, vm, vmi

from corral.controllers.vm.start_failure import delay_seconds, seconds_left, start_failure


def lowest(_sides: int) -> int:
    return 0


def highest(sides: int) -> int:
    return sides - 1


def early(**fields):
    return vmi("Failed", entered=("Pending", "Scheduling", "Failed"), **fields)


@pytest.mark.parametrize(
    ("count", "least", "most"),
    [(0, 10, 15), (1, 10, 15), (2, 40, 60), (3, 90, 135), (4, 160, 240), (5, 250, 300),
     (6, 300, 300), (100, 300, 300)],
)  # fmt: skip
def test_the_delay_grows_with_the_square_of_the_failures(count, least, most):
    assert delay_seconds(count, lowest) == least
    assert delay_seconds(count, highest) == most


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failures_count_if_vmis_are_created_without_requests(strategy):
    failed = early()
    new_status = start_failure(vm(strategy), failed, NOW, lowest)
    if strategy in ("Manual", "Halted"):
        assert new_status is None
        return
    assert new_status.consecutive_fail_count == 1
    assert new_status.last_failed_vmi_uid == failed.metadata.uid
    assert new_status.retry_after_timestamp == "2026-01-01T12:00:10Z"


def test_each_vmi_counts_once():
    failed = early()
    known = {
        "consecutiveFailCount": 4,
        "lastFailedVMIUID": failed.metadata.uid,
        "retryAfterTimestamp": "2026-01-01T12:30:00Z",
    }
    one = vm(failure=known)
    assert start_failure(one, failed, NOW, lowest) == one.status.start_failure
    again = start_failure(one, early(), NOW, highest)
    assert (again.consecutive_fail_count, again.retry_after_timestamp) == (
        5,
        "2026-01-01T12:05:00Z",
    )


def test_a_vmi_that_ran_resets_the_failures():
    failure = {"consecutiveFailCount": 4, "lastFailedVMIUID": "x"}
    for ran in (vmi("Running"), vmi("Failed", entered=("Running", "Failed")), vmi("Succeeded")):
        assert start_failure(vm(failure=failure), ran, NOW, lowest) is None


@pytest.mark.parametrize("one", [None, vmi("Scheduling"), vmi("Pending")])
def test_the_failures_stay_until_the_outcome_is_known(one):
    before = vm(failure={"consecutiveFailCount": 4, "lastFailedVMIUID": "x"})
    assert start_failure(before, one, NOW, lowest) == before.status.start_failure


@pytest.mark.parametrize("strategy", ["Manual", "Halted"])
def test_a_changed_run_strategy_resets_the_failures(strategy):
    failure = {"consecutiveFailCount": 4, "lastFailedVMIUID": "x"}
    assert start_failure(vm(strategy, failure=failure), None, NOW, lowest) is None


def test_a_stopped_vmi_did_not_fail():
    failed = early()
    assert start_failure(vm(requests=(stop(failed),)), failed, NOW, lowest) is None


@pytest.mark.parametrize("part", [1, 999_999])
def test_the_retry_time_is_rounded_up_to_a_whole_second(part):
    new_status = start_failure(vm(), early(), NOW + timedelta(microseconds=part), lowest)
    assert new_status.retry_after_timestamp == "2026-01-01T12:00:11Z"


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        (None, 0),
        ("2026-01-01T12:00:00Z", 0),
        ("2026-01-01T11:00:00Z", 0),
        ("2026-01-01T12:00:07Z", 7),
        ("2027-01-01T12:00:00Z", 300),
        ("tomorrow", 0),
    ],
)
def test_the_remaining_delay(retry, seconds):
    failure = {"consecutiveFailCount": 1}
    if retry:
        failure["retryAfterTimestamp"] = retry
    assert seconds_left(vm(failure=failure), NOW) == seconds


def test_without_failures_there_is_no_delay():
    assert seconds_left(vm(), NOW) == 0
