"""Until when a node's Lease is valid, as the node knows it."""

import os

import pytest

from corral.node.fencing import lease as leases, watchdog
from corral.node.fencing.lease import NodeLease


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lease(tmp_path, clock):
    return NodeLease(tmp_path, clock)


def mtime(tmp_path):
    return (tmp_path / watchdog.RENEWED).stat().st_mtime


def test_a_node_that_never_renewed_has_no_valid_lease(lease):
    assert not lease.is_valid


def test_a_renewal_counts_from_when_it_was_sent(lease, clock, tmp_path):
    sent = lease.now()
    clock.now += 15  # the answer takes its time
    lease.renewed(sent)
    assert lease.seconds_left == 25
    assert mtime(tmp_path) == 1000.0


def test_a_lease_expires_after_forty_seconds(lease, clock):
    lease.renewed(lease.now())
    clock.now += 39.9
    assert lease.is_valid
    clock.now += 0.1
    assert not lease.is_valid


def test_a_lapse_that_is_over_is_counted(lease, clock):
    """As in a process that was stopped, and whose first step is a renewal."""
    lease.renewed(lease.now())
    before = lease.lapses
    clock.now += 100
    lease.renewed(lease.now())
    assert lease.is_valid
    assert lease.lapses == before + 1


def test_an_answer_that_comes_too_late_renews_nothing(lease, clock):
    sent = lease.now()
    clock.now += 50
    lease.renewed(sent)
    assert not lease.is_valid


def test_the_next_agent_goes_on_with_the_last_renewal(lease, clock, tmp_path):
    lease.renewed(lease.now())
    clock.now += 30
    assert NodeLease(tmp_path, clock).seconds_left == 10
    clock.now += 10
    assert not NodeLease(tmp_path, clock).is_valid


def test_a_renewal_of_an_earlier_boot_does_not_count(lease, clock, tmp_path, monkeypatch):
    lease.renewed(lease.now())
    monkeypatch.setattr(leases, "boot_id", lambda: "another")
    assert not NodeLease(tmp_path, clock).is_valid
    assert watchdog.last_renewal(tmp_path, clock()) == float("-inf")


def test_a_renewal_that_the_watchdog_cannot_see_does_not_count(lease, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    lease.renewed(lease.now())
    assert not lease.is_valid


def test_machines_of_a_stopped_agent_run_on_in_this_boot(lease, clock, tmp_path, monkeypatch):
    lease.renewed(lease.now())
    lease.stop()
    clock.now += 10_000
    assert not NodeLease(tmp_path, clock).ends_machines
    with monkeypatch.context() as another:
        another.setattr(leases, "boot_id", lambda: "another")
        assert NodeLease(tmp_path, clock).ends_machines
    lease.resume()
    assert lease.ends_machines


def test_machines_end_without_a_valid_lease(lease, clock, tmp_path):
    assert lease.ends_machines
    lease.renewed(lease.now())
    assert not lease.ends_machines
