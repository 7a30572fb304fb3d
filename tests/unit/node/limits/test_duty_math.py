"""When a process with a share of the processors stops, and when it goes on."""

import random

import pytest

from corral.node.limits.duty_math import STOP_SECONDS, Cycle


class Simulated:
    """A process that uses ``speed`` processors while it runs, and a watcher that may be late."""

    def __init__(self, share, speed, *, late=lambda: 0.0):
        self.cycle = Cycle(share, 0.0, 0.0)
        self.speed = speed
        self.late = late
        self.now = self.used = 0.0
        self.runs = True
        self.stops = []
        self.looks = 0

    def go_on(self, seconds):
        end = self.now + seconds
        while self.now < end:
            verdict = self.cycle.sample(self.now, self.used)
            self.looks += 1
            step = verdict.next_seconds + self.late()
            if not verdict.runs:
                self.stops.append(step)
            self.runs = verdict.runs
            self.now += step
            self.used += step * self.speed * self.runs
        return self


@pytest.mark.parametrize("share", [0.005, 0.01, 0.02, 0.1, 0.3, 0.5, 0.9, 1.5])
@pytest.mark.parametrize("speed", [1, 2, 4])
def test_a_busy_process_gets_its_share_on_average(share, speed):
    process = Simulated(share, speed).go_on(60)
    assert process.used / process.now == pytest.approx(min(share, speed), rel=0.1)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_late_samples_are_compensated(share):
    chance = random.Random(4)
    process = Simulated(share, 1, late=lambda: chance.uniform(0, 0.02)).go_on(60)
    assert process.used / process.now == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.9])
def test_processes_are_never_stopped_for_long(share):
    process = Simulated(share, 1).go_on(20)
    assert process.stops
    assert max(process.stops) <= 2 * STOP_SECONDS + 1e-9


def test_a_process_below_its_share_is_never_stopped_and_rarely_sampled():
    process = Simulated(0.3, 0.05).go_on(60)
    assert not process.stops
    assert process.looks < 60 * 6


def test_an_idle_process_is_sampled_once_a_second():
    process = Simulated(0.3, 0.005).go_on(60)
    assert not process.stops
    assert process.looks < 70
    process.speed, process.used = 1, 0.0
    start = process.now
    process.go_on(60)
    assert process.used / (process.now - start) == pytest.approx(0.3, rel=0.1)


def test_unused_time_does_not_accumulate():
    process = Simulated(0.3, 0.0).go_on(60)
    process.speed, process.used = 1, 0.0
    start = process.now
    process.go_on(10)
    assert process.used / (process.now - start) == pytest.approx(0.3, rel=0.1)


def test_an_unsampled_burst_is_compensated_by_short_stops():
    process = Simulated(0.3, 0.0).go_on(10)
    process.used += 1.0
    process.speed = 1
    start = process.now
    process.go_on(20)
    assert max(process.stops) <= 2 * STOP_SECONDS + 1e-9
    assert process.used / (process.now - start) == pytest.approx(0.3, rel=0.1)
