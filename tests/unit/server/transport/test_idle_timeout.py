"""What a connection waits for is lost at its time, whatever was waited for before."""

import asyncio

import pytest

from corral.server.transport.idle_timeout import LOOK_SECONDS, Patience


class Loop:
    """As much of an event loop as timers need; its clock goes on when told."""

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
def lost(loop):
    return []


@pytest.fixture
def patience(loop, lost):
    return Patience(loop, lambda: lost.append(loop.time()))


@pytest.mark.parametrize("seconds", [0.5, LOOK_SECONDS, 3 * LOOK_SECONDS + 1])
def test_it_is_lost_at_its_time(loop, patience, lost, seconds):
    patience.begin(seconds)
    loop.go_on(1000)
    assert lost == [seconds]
    assert patience.due is None


def test_nothing_is_lost_that_came(loop, patience, lost):
    patience.begin(10)
    loop.go_on(9)
    patience.end()
    loop.go_on(1000)
    assert lost == []
    assert not loop.timers


def test_the_next_is_waited_for_from_its_own_begin(loop, patience, lost):
    patience.begin(10)
    patience.end()
    loop.go_on(5)
    patience.begin(90)
    loop.go_on(1000)
    assert lost == [95]


def test_a_short_wait_after_a_long_one_is_not_overslept(loop, patience, lost):
    patience.begin(90)
    patience.begin(1)
    loop.go_on(1000)
    assert lost == [1]


def test_many_waits_take_one_timer(loop, patience, lost):
    for _ in range(100):
        patience.begin(30)
        patience.end()
        patience.begin(90)
    assert len(loop.timers) == 1
    patience.close()
    assert not loop.timers
    assert lost == []
