"""Which range a node gets."""

from ipaddress import ip_network

import pytest
from hypothesis import given, strategies as st

from corral.cluster.node_ipam import free_range, prefix_for

PODS = ip_network("10.244.0.0/16")


@pytest.mark.parametrize(
    ("whole", "nodes", "prefix"),
    [
        ("10.244.0.0/16", 1, 17),
        ("10.244.0.0/16", 2, 20),
        ("10.244.0.0/16", 16, 20),
        ("10.244.0.0/16", 17, 24),
        ("10.244.0.0/24", 17, 28),
        ("10.244.0.0/29", 17, 30),
        ("fd00:10:244::/56", 1, 64),
        ("fd00:10:244::/112", 1, 113),
    ],
)
def test_ranges_are_smaller_for_more_nodes(whole, nodes, prefix):
    assert prefix_for(ip_network(whole), nodes) == prefix


def test_the_lowest_free_range_is_allocated():
    used = [ip_network("10.244.0.0/20"), ip_network("10.244.32.0/20")]
    assert free_range(PODS, 20, used) == ip_network("10.244.16.0/20")


def test_a_released_range_is_allocated_again():
    used = [ip_network(f"10.244.{n * 16}.0/20") for n in range(16)]
    freed = used.pop(3)
    assert free_range(PODS, 20, used) == freed


def test_a_smaller_range_is_allocated_if_none_of_the_size_is_left():
    used = [ip_network("10.244.0.0/17"), ip_network("10.244.128.0/18")]
    used.append(ip_network("10.244.192.0/19"))
    assert free_range(PODS, 17, used) == ip_network("10.244.224.0/19")


def test_an_exhausted_pod_range_allocates_nothing():
    assert free_range(PODS, 20, [PODS]) is None


def test_ranges_of_another_ip_family_do_not_conflict():
    assert free_range(PODS, 17, [ip_network("::/0")]) == ip_network("10.244.0.0/17")


@given(st.lists(st.integers(17, 28), max_size=40))
def test_no_two_ranges_overlap(prefixes):
    used = []
    for prefix in prefixes:
        found = free_range(PODS, prefix, used)
        if found is not None:
            assert found.subnet_of(PODS)
            assert not any(found.overlaps(other) for other in used)
            used.append(found)
