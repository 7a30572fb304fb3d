"""Which addresses are handed out, and when again."""

from ipaddress import ip_address, ip_network

import pytest

from corral.node.network.allocator import Allocator, NoAddressFreeError


def allocator(*ranges: str) -> Allocator:
    return Allocator([ip_network(one) for one in ranges])


def test_the_first_addresses_are_the_networks_and_the_gateways():
    assert allocator("10.244.0.0/24").take("a") == (ip_address("10.244.0.2"),)


def test_there_is_an_address_of_each_family():
    both = allocator("10.244.0.0/24", "fd00:10:244::/64")
    assert both.families == (4, 6)
    assert both.take("a") == (ip_address("10.244.0.2"), ip_address("fd00:10:244::2"))
    assert both.take("b", (4,)) == (ip_address("10.244.0.3"),)
    assert both.take("c") == (ip_address("10.244.0.4"), ip_address("fd00:10:244::3"))


def test_who_asks_again_is_told_the_same():
    one = allocator("10.244.0.0/24")
    assert one.take("a") == one.take("a")


def test_no_two_have_the_same_until_all_are_taken():
    one = allocator("10.244.0.0/24")
    taken = [one.take(str(number))[0] for number in range(253)]
    assert len(set(taken)) == 253
    assert ip_address("10.244.0.255") not in taken
    with pytest.raises(NoAddressFreeError, match=r"10\.244\.0\.0/24: all 253 are taken"):
        one.take("one more")
    one.free("7")
    assert one.take("one more") == (taken[7],)


def test_a_freed_address_rests_until_all_others_had_their_turn():
    one = allocator("10.244.0.0/28")
    first = one.take("a")
    one.free("a")
    following = []
    for number in range(12):
        following.append(one.take(str(number)))
        one.free(str(number))
    assert first not in following
    assert one.take("b") == first


def test_what_earlier_machines_hold_is_not_given_away():
    one = allocator("10.244.0.0/29")
    one.hold("old", [ip_address("10.244.0.3")])
    assert [str(one.take(name)[0]) for name in "abcd"] == [
        "10.244.0.2",
        "10.244.0.4",
        "10.244.0.5",
        "10.244.0.6",
    ]
    assert one.take("old") == (ip_address("10.244.0.3"),)
    one.free("old")
    assert one.take("new") == (ip_address("10.244.0.3"),)


def test_an_address_of_a_range_of_earlier_days_is_replaced_when_it_is_taken():
    one = allocator("10.244.0.0/24")
    one.hold("old", [ip_address("10.1.0.9")])
    assert one.take("old") == (ip_address("10.244.0.2"),)


def test_one_family_that_is_full_takes_nothing_of_the_other():
    one = allocator("10.244.0.0/30", "fd00::/64")
    one.take("a")
    with pytest.raises(NoAddressFreeError):
        one.take("b")
    one.free("a")
    assert one.take("b") == (ip_address("10.244.0.2"), ip_address("fd00::3"))


@pytest.mark.parametrize("range_", ["10.0.0.0/31", "10.0.0.0/32", "fd00::/128"])
def test_a_range_without_room_has_no_address(range_):
    with pytest.raises(NoAddressFreeError, match="all 0 are taken"):
        allocator(range_).take("a")
