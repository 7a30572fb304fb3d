"""What a connection waits for is lost at its time, whatever was waited for before."""

import asyncio

import pytest

from corral.server.transport.idle_timeout import MAX_CHECK_SECONDS, IdleTimeout


class Loop:
    """As much of an event loop as timers need; its clock goes on when a test says so."""

    def __init__(self):
        self.now = 0.0
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        self.timers.append(asyncio.TimerHandle(when, callback, (), self))
        return self.timers[-1]

    def _timer_handle_cancelled(self, timer):
        self.timers.remove(timer)

    def get_debug(self):
        return False

    def go_on(self, until):
        while due := [timer for timer in self.timers if timer.when() <= until]:
            first = min(due, key=asyncio.TimerHandle.when)
            self.now = first.when()
            self.timers.remove(first)
            first._run()
        self.now = until


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def expired(loop):
    return []


@pytest.fixture
def idle_timeout(loop, expired):
    return IdleTimeout(loop, lambda: expired.append(loop.time()))


@pytest.mark.parametrize("seconds", [0.5, MAX_CHECK_SECONDS, 3 * MAX_CHECK_SECONDS + 1])
def test_it_expires_at_its_time(loop, idle_timeout, expired, seconds):
    idle_timeout.start(seconds)
    loop.go_on(1000)
    assert expired == [seconds]
    assert idle_timeout.due is None


def test_a_stopped_timeout_does_not_expire(loop, idle_timeout, expired):
    idle_timeout.start(10)
    loop.go_on(9)
    idle_timeout.stop()
    loop.go_on(1000)
    assert expired == []
    assert not loop.timers


def test_a_restarted_timeout_counts_from_its_start(loop, idle_timeout, expired):
    idle_timeout.start(10)
    idle_timeout.stop()
    loop.go_on(5)
    idle_timeout.start(90)
    loop.go_on(1000)
    assert expired == [95]


def test_a_shorter_timeout_after_a_longer_one_expires_in_time(loop, idle_timeout, expired):
    idle_timeout.start(90)
    idle_timeout.start(1)
    loop.go_on(1000)
    assert expired == [1]


def test_many_timeouts_use_one_timer(loop, idle_timeout, expired):
    for _ in range(100):
        idle_timeout.start(30)
        idle_timeout.stop()
        idle_timeout.start(90)
    assert len(loop.timers) == 1
    idle_timeout.close()
    assert not loop.timers
    assert expired == []
