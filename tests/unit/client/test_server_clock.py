"""The clock of an API server, by the Date of its responses."""

from datetime import UTC, datetime
from email.utils import formatdate

import pytest

from corral import pki
from corral.client.server_clock import FAR_SECONDS, ServerClock

NOW = 1_800_000_000.0


def clock_of(ahead, *, seconds=0.0, fraction=0.5):
    """Return the clock after a response that took ``seconds``, of a server ahead of this host."""
    local = [NOW + fraction]
    clock = ServerClock(lambda: local[0])
    sent = clock.begin()
    local[0] += seconds
    clock.observe(formatdate(int(local[0] + ahead), usegmt=True), sent)
    return clock


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.999])
def test_clocks_that_may_agree_do(fraction):
    assert clock_of(0, fraction=fraction).offset == 0
    assert clock_of(0, seconds=20, fraction=fraction).offset == 0
    assert clock_of(-5, seconds=20).offset == 0, "the server may have answered long ago"


@pytest.mark.parametrize("ahead", [-7200.0, -600.0, 3.0, 600.0])
def test_the_time_of_day_is_that_of_the_server_to_a_second(ahead):
    clock = clock_of(ahead, fraction=0.25)
    assert clock.offset == pytest.approx(ahead, abs=1)
    right = datetime.fromtimestamp(NOW + 0.25 + ahead, UTC)
    assert abs((clock.now() - right).total_seconds()) <= 1


@pytest.mark.parametrize(
    ("ahead", "difference"),
    [
        (0, ""),
        (299, ""),
        (-299, ""),
        (600, "10 minutes behind"),
        (-600, "10 minutes ahead of"),
        (3 * 3600, "3 hours behind"),
        (-400 * 86400, "400 days ahead of"),
    ],
)
def test_a_difference_that_certificates_do_not_bear_is_named(ahead, difference):
    assert clock_of(ahead).difference == difference


def test_a_difference_is_far_from_the_skew_that_certificates_bear():
    assert pki.SKEW.total_seconds() == FAR_SECONDS


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Nov 2026 25:00:00 GMT"])
def test_a_date_that_cannot_be_read_changes_nothing(date):
    clock = clock_of(600)
    before = clock.offset
    clock.observe(date, clock.begin())
    assert clock.offset == before
