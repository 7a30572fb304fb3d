"""Heartbeats of hosts in a shared directory: when another host counts as silent."""

from pathlib import Path

import pytest

from corral.node.storage import host_heartbeats
from corral.node.storage.host_heartbeats import SILENT_SECONDS, HostHeartbeats


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pair(tmp_path, clock):
    """The heartbeats as two hosts see them."""
    return (
        HostHeartbeats(tmp_path, "a", "node-a", clock),
        HostHeartbeats(tmp_path, "b", "node-b", clock),
    )


def pass_time(clock, observer):
    """Let the time pass in which a host becomes silent, while another one observes it."""
    for _ in range(2):
        clock.now += SILENT_SECONDS / 2
        observer.observe()


def test_a_host_that_writes_is_not_silent(pair, clock):
    mine, other = pair
    for _ in range(20):
        other.beat()
        assert not mine.is_silent("b")
        clock.now += 10


def test_a_host_is_silent_once_reads_of_its_token_are_that_far_apart(pair, clock):
    mine, other = pair
    other.beat()
    assert not mine.is_silent("b")
    pass_time(clock, mine)
    assert mine.is_silent("b")
    other.beat()
    assert not mine.is_silent("b")


def test_a_host_is_not_silent_before_it_was_observed_for_long(pair, clock):
    mine, other = pair
    other.beat()
    clock.now += 10 * SILENT_SECONDS
    assert not mine.is_silent("b")


def test_a_read_that_fails_proves_nothing(pair, clock, tmp_path):
    mine, other = pair
    other.beat()
    mine.is_silent("b")
    clock.now += 10 * SILENT_SECONDS
    heartbeat = tmp_path / "hosts" / "b"
    heartbeat.unlink()
    heartbeat.mkdir()
    with pytest.raises(OSError, match="directory"):
        mine.is_silent("b")


def test_a_read_that_hangs_proves_nothing(pair, clock, monkeypatch):
    mine, other = pair
    other.beat()
    mine.is_silent("b")
    clock.now += 10
    read = Path.read_bytes

    def read_late(path):
        clock.now += 10 * SILENT_SECONDS
        return read(path)

    with monkeypatch.context() as hanging:
        hanging.setattr(Path, "read_bytes", read_late)
        assert not mine.is_silent("b")
    assert not mine.is_silent("b")


def test_time_without_reads_proves_nothing(pair, clock):
    """The directory may have been away for all: whoever is first then would see no other."""
    mine, other = pair
    other.beat()
    mine.observe()
    clock.now += 10 * SILENT_SECONDS
    assert not mine.observe()
    assert not mine.is_silent("b")
    pass_time(clock, mine)
    assert mine.is_silent("b")


def test_a_host_without_a_heartbeat_is_observed_from_the_first_query_on(pair, clock):
    mine, _ = pair
    assert not mine.is_silent("gone")
    pass_time(clock, mine)
    assert mine.is_silent("gone")


def test_observing_reports_a_host_that_has_become_silent_once(pair, clock):
    mine, other = pair
    other.beat()
    assert not mine.observe()
    clock.now += SILENT_SECONDS / 2
    assert not mine.observe()
    clock.now += SILENT_SECONDS / 2
    assert mine.observe()
    assert not mine.observe()


def test_another_thread_may_query_a_new_host_while_all_are_observed(pair, monkeypatch):
    mine, other = pair
    other.beat()
    mine.observe()
    is_silent = host_heartbeats._is_silent

    def while_another_queries(heartbeat):
        mine._read(f"new-{len(mine._observed)}")
        return is_silent(heartbeat)

    monkeypatch.setattr(host_heartbeats, "_is_silent", while_another_queries)
    assert not mine.observe()


def test_hosts_have_the_names_of_their_nodes(pair):
    mine, other = pair
    other.beat()
    mine.observe()
    assert (mine.node_of("b"), mine.node_of("gone")) == ("node-b", "gone")


def test_a_heartbeat_is_overwritten_in_place(pair, tmp_path):
    _, other = pair
    other.beat()
    before = (tmp_path / "hosts" / "b").stat()
    other.beat()
    after = (tmp_path / "hosts" / "b").stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)
