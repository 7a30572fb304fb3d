"""Which addresses are handed out, and when again."""

from ipaddress import ip_address, ip_network

import pytest

from corral.node.network.allocator import Allocator, NoAddressFreeError


def allocator(*ranges: str) -> Allocator:
    return Allocator([ip_network(one) for one in ranges])


def test_the_first_addresses_are_reserved():
    assert allocator("10.244.0.0/24").allocate("a") == (ip_address("10.244.0.2"),)


def test_each_machine_gets_an_address_of_each_family():
    both = allocator("10.244.0.0/24", "fd00:10:244::/64")
    assert both.families == (4, 6)
    assert both.allocate("a") == (ip_address("10.244.0.2"), ip_address("fd00:10:244::2"))
    assert both.allocate("b", (4,)) == (ip_address("10.244.0.3"),)
    assert both.allocate("c") == (ip_address("10.244.0.4"), ip_address("fd00:10:244::3"))


def test_a_repeated_request_gets_the_same_addresses():
    one = allocator("10.244.0.0/24")
    assert one.allocate("a") == one.allocate("a")


def test_addresses_are_unique_until_the_range_is_exhausted():
    one = allocator("10.244.0.0/24")
    taken = [one.allocate(str(number))[0] for number in range(253)]
    assert len(set(taken)) == 253
    assert ip_address("10.244.0.255") not in taken
    with pytest.raises(NoAddressFreeError, match=r"10\.244\.0\.0/24: all 253 are taken"):
        one.allocate("one more")
    one.release("7")
    assert one.allocate("one more") == (taken[7],)


def test_a_released_address_is_reused_last():
    one = allocator("10.244.0.0/28")
    first = one.allocate("a")
    one.release("a")
    following = []
    for number in range(12):
        following.append(one.allocate(str(number)))
        one.release(str(number))
    assert first not in following
    assert one.allocate("b") == first


def test_addresses_of_existing_machines_are_not_allocated():
    one = allocator("10.244.0.0/29")
    one.reserve("old", [ip_address("10.244.0.3")])
    assert [str(one.allocate(name)[0]) for name in "abcd"] == [
        "10.244.0.2",
        "10.244.0.4",
        "10.244.0.5",
        "10.244.0.6",
    ]
    assert one.allocate("old") == (ip_address("10.244.0.3"),)
    one.release("old")
    assert one.allocate("new") == (ip_address("10.244.0.3"),)


def test_an_address_outside_of_the_current_range_is_replaced():
    one = allocator("10.244.0.0/24")
    one.reserve("old", [ip_address("10.1.0.9")])
    assert one.allocate("old") == (ip_address("10.244.0.2"),)


def test_an_exhausted_family_leaks_nothing_of_the_other():
    one = allocator("10.244.0.0/30", "fd00::/64")
    one.allocate("a")
    with pytest.raises(NoAddressFreeError):
        one.allocate("b")
    one.release("a")
    assert one.allocate("b") == (ip_address("10.244.0.2"), ip_address("fd00::3"))


@pytest.mark.parametrize("range_", ["10.0.0.0/31", "10.0.0.0/32", "fd00::/128"])
def test_a_too_small_range_has_no_addresses(range_):
    with pytest.raises(NoAddressFreeError, match="all 0 are taken"):
        allocator(range_).allocate("a")


def test_an_address_that_two_machines_have_is_free_once_both_released_it():
    one = allocator("10.244.0.0/29")
    [address] = one.allocate("source")
    one.reserve("target", [address])  # a migration keeps it
    one.release("source")
    others = [one.allocate(name)[0] for name in "abcd"]
    assert address not in others
    with pytest.raises(NoAddressFreeError):
        one.allocate("e")
    one.release("target")
    assert one.allocate("e") == (address,)
