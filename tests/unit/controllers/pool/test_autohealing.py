"""Which VirtualMachines are made anew because they do not come up."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.controllers.pool.make import pool, vm

from corral.controllers.pool.autohealing import FAILING, Healing, plan
from corral.controllers.pool.scale_plan import LEAVING

NOW = datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
LONG_AGO = "2026-01-01T00:55:00Z"
"""Five minutes before."""


def failing(one, number=0, *, status="ErrImagePull", probed=LONG_AGO, **fields):
    return vm(one, number, probed=probed, status={"printableStatus": status}, **fields)


def often(one, number=0, *, count):
    failure = {"consecutiveFailCount": count, "lastFailedVMIUID": "x"}
    return vm(one, number, status={"startFailure": failure})


def test_without_autohealing_no_vm_is_recreated():
    one = pool()
    assert plan(one, [failing(one), often(one, count=9)], NOW) == Healing()


@pytest.mark.parametrize("status", sorted(FAILING))
def test_a_vm_that_is_unready_for_too_long_is_recreated(status):
    one = pool(autohealing={})
    failed = failing(one, status=status)
    assert plan(one, [failed, vm(one, 1)], NOW).failed == (failed,)


@pytest.mark.parametrize("status", ["Running", "Starting", "Stopped", "Provisioning", "Paused", ""])
def test_a_starting_vm_is_awaited(status):
    one = pool(autohealing={})
    assert plan(one, [failing(one, status=status)], NOW) == Healing()


def test_the_time_counts_from_the_last_change_to_not_ready():
    one = pool(autohealing={"minFailingToStartDuration": "1h30m"})
    decided = plan(one, [failing(one), failing(one, 1, probed="2026-01-01T00:10:00Z")], NOW)
    assert decided == Healing((), 40 * 60)
    one = pool(autohealing={"minFailingToStartDuration": "5m1s"})
    assert plan(one, [failing(one)], NOW) == Healing((), 1)


def test_without_a_probe_time_the_transition_time_counts():
    one = pool(autohealing={})
    failed = failing(one, probed=None)
    assert plan(one, [failed], NOW) == Healing()
    failed.status.conditions[0].last_transition_time = LONG_AGO
    assert plan(one, [failed], NOW).failed == (failed,)


@pytest.mark.parametrize(
    ("threshold", "count", "failed"), [(None, 2, 0), (None, 3, 1), (5, 4, 0), (5, 5, 1)]
)
def test_a_vm_with_too_many_start_failures_is_recreated_at_once(threshold, count, failed):
    one = pool(autohealing={} if threshold is None else {"startUpFailureThreshold": threshold})
    assert len(plan(one, [often(one, count=count)], NOW).failed) == failed


def test_a_vm_with_too_many_start_failures_is_reported_for_a_moment():
    one = pool(autohealing={})
    failed = often(one, count=3)
    failed.status.conditions[0].last_probe_time = "2026-01-01T00:59:58Z"
    assert plan(one, [failed], NOW) == Healing((), 3)
    assert plan(one, [failed], NOW + timedelta(seconds=3)).failed == (failed,)


def test_a_terminating_vm_is_not_deleted_again():
    one = pool(autohealing={})
    gone = failing(one, going=True)
    leaving = failing(one, 1, annotations={LEAVING: "Offline"})
    assert plan(one, [gone, leaving], NOW) == Healing()


def test_a_vm_that_became_ready_is_not_recreated():
    one = pool(autohealing={})
    well = failing(one)
    well.status.conditions[0].status = "True"
    assert plan(one, [well], NOW) == Healing()
