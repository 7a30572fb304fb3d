"""How much is let through, in bursts and in the long run."""

import pytest
from hypothesis import given, strategies as st

from corral.node.network.dhcp.rate_limit import Allowance


def test_a_burst_passes_then_half_of_it_must_grow_again():
    allowance = Allowance(10, 20)
    assert [allowance.take(100) for _ in range(20)] == [0] * 20
    assert allowance.take(100) == 1
    assert [allowance.take(101) for _ in range(11)] == [0] * 10 + [pytest.approx(1)]


def test_what_grows_is_no_more_than_a_burst():
    allowance = Allowance(10, 2)
    assert [allowance.take(1e6) > 0 for _ in range(3)] == [False, False, True]


@given(st.lists(st.floats(0, 3), max_size=200))
def test_no_span_has_more_than_a_burst_and_the_rate(pauses):
    allowance, now, taken = Allowance(10, 20), 50.0, 0
    for pause in pauses:
        now += pause
        taken += allowance.take(now) == 0
    assert taken <= 20 + 10 * (now - 50) + 1e-6
