"""Which addresses are handed out, and when again."""

from ipaddress import ip_address, ip_network

import pytest

from corral.node.network.allocator import Allocator, NoAddressFreeError


def allocator(*ranges: str) -> Allocator:
    return Allocator([ip_network(one) for one in ranges])


def test_the_first_addresses_are_the_networks_and_the_gateways():
    assert allocator("10.244.0.0/24").allocate("a") == (ip_address("10.244.0.2"),)


def test_there_is_an_address_of_each_family():
    both = allocator("10.244.0.0/24", "fd00:10:244::/64")
    assert both.families == (4, 6)
    assert both.allocate("a") == (ip_address("10.244.0.2"), ip_address("fd00:10:244::2"))
    assert both.allocate("b", (4,)) == (ip_address("10.244.0.3"),)
    assert both.allocate("c") == (ip_address("10.244.0.4"), ip_address("fd00:10:244::3"))


def test_who_asks_again_is_told_the_same():
    one = allocator("10.244.0.0/24")
    assert one.allocate("a") == one.allocate("a")


def test_no_two_have_the_same_until_all_are_taken():
    one = allocator("10.244.0.0/24")
    taken = [one.allocate(str(number))[0] for number in range(253)]
    assert len(set(taken)) == 253
    assert ip_address("10.244.0.255") not in taken
    with pytest.raises(NoAddressFreeError, match=r"10\.244\.0\.0/24: all 253 are taken"):
        one.allocate("one more")
    one.release("7")
    assert one.allocate("one more") == (taken[7],)


def test_a_freed_address_rests_until_all_others_had_their_turn():
    one = allocator("10.244.0.0/28")
    first = one.allocate("a")
    one.release("a")
    following = []
    for number in range(12):
        following.append(one.allocate(str(number)))
        one.release(str(number))
    assert first not in following
    assert one.allocate("b") == first


def test_what_earlier_machines_hold_is_not_given_away():
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


def test_an_address_of_a_range_of_earlier_days_is_replaced_when_it_is_taken():
    one = allocator("10.244.0.0/24")
    one.reserve("old", [ip_address("10.1.0.9")])
    assert one.allocate("old") == (ip_address("10.244.0.2"),)


def test_one_family_that_is_full_takes_nothing_of_the_other():
    one = allocator("10.244.0.0/30", "fd00::/64")
    one.allocate("a")
    with pytest.raises(NoAddressFreeError):
        one.allocate("b")
    one.release("a")
    assert one.allocate("b") == (ip_address("10.244.0.2"), ip_address("fd00::3"))


@pytest.mark.parametrize("range_", ["10.0.0.0/31", "10.0.0.0/32", "fd00::/128"])
def test_a_range_without_room_has_no_address(range_):
    with pytest.raises(NoAddressFreeError, match="all 0 are taken"):
        allocator(range_).allocate("a")
