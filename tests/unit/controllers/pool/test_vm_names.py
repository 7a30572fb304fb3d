"""The numbers of a pool's VirtualMachines."""

import pytest
from hypothesis import given, strategies as st

from corral.controllers.pool.vm_names import free_names, ordinal


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("web-0", 0),
        ("web-12", 12),
        ("vm-pool-cirros-3", 3),
        ("web-x", 0),
        ("web", 0),
        ("web-", 0),
        ("web-²", 0),
        ("web-99999999999999999999", 0),
    ],
)
def test_the_ordinal_follows_the_last_dash(name, number):
    assert ordinal(name) == number


@pytest.mark.parametrize(
    ("taken", "count", "names"),
    [
        ((), 3, ["web-0", "web-1", "web-2"]),
        ((1, 3), 3, ["web-0", "web-2", "web-4"]),
        ((0, 1), 1, ["web-2"]),
        ((), 0, []),
    ],
)
def test_the_lowest_free_ordinals_are_used(taken, count, names):
    assert free_names("web", count, {f"web-{number}" for number in taken}.__contains__) == names


@given(st.sets(st.integers(0, 30)), st.integers(0, 20))
def test_names_are_unused_and_have_the_lowest_ordinals(taken, count):
    found = free_names("p", count, lambda name: ordinal(name) in taken)
    numbers = [ordinal(name) for name in found]
    assert len(numbers) == count
    assert not taken & set(numbers)
    if numbers:
        assert set(range(numbers[-1])) <= taken | set(numbers)
