"""Tests of the addresses by which this machine is reached."""

import ipaddress

import pytest

from corral import hosts


@pytest.mark.parametrize(
    ("host", "wildcard"),
    [("0.0.0.0", True), ("::", True), ("", True), ("127.0.0.1", False), ("here", False)],
)
def test_wildcards(host, wildcard):
    assert hosts.is_wildcard(host) is wildcard


def test_the_machine_has_a_loopback_address_and_only_such_as_others_can_use():
    found = hosts.addresses()
    assert "127.0.0.1" in found
    parsed = [ipaddress.ip_address(each) for each in found]
    assert not any(
        each.is_unspecified or (each.version == 6 and each.is_link_local) for each in parsed
    )


@pytest.mark.parametrize(("wildcard", "version"), [("0.0.0.0", 4), ("::", 6)])
def test_a_wildcard_is_reached_at_one_of_the_machines_addresses(wildcard, version):
    address = ipaddress.ip_address(hosts.reachable(wildcard))
    assert address.version == version
    assert address.is_loopback or str(address) in hosts.addresses()


def test_a_real_address_is_reached_as_it_is():
    assert hosts.reachable("10.0.0.7") == "10.0.0.7"
