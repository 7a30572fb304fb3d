"""Tests of addresses, blocks and ports as documents write them."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, strategies as st

from corral.api.addresses import (
    address_faults,
    network_faults,
    parse_address,
    parse_network,
    port_faults,
    port_name_faults,
    special_faults,
)


@given(st.ip_addresses())
def test_addresses_round_trip(address):
    assert parse_address(str(address)) == address
    assert address_faults(str(address)) == []


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "010.0.0.1", "fe80::1%eth0", "1.2.3.4/8", "a", " ::"]
)
def test_invalid_addresses(text):
    assert address_faults(text) == ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]


def test_a_network_may_have_host_bits():
    assert parse_network("10.9.8.7/24") == ip_network("10.9.8.0/24")
    assert parse_network("2001:db8::1/64") == ip_network("2001:db8::/64")
    assert network_faults("0.0.0.0/0") == []


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "::/129", "/8"]
)
def test_invalid_networks(text):
    assert network_faults(text) == [
        "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::", "may not be unspecified (::)"),
        ("127.1.2.3", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::ffff:127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.169.254", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.251", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("ff02::fb", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("nowhere", "must be a valid IP address"),
    ],
)
def test_special_addresses_are_detected(text, fault):
    assert special_faults(text) == [fault]


@pytest.mark.parametrize("text", ["10.0.0.1", "192.0.2.1", "224.0.1.1", "fd00::1", "2001:db8::1"])
def test_addresses_of_endpoints(text):
    assert special_faults(text) == []
    assert ip_address(text) == parse_address(text)


def test_ports():
    assert port_faults(1) == port_faults(65535) == []
    assert port_faults(0) == port_faults(65536) == ["must be between 1 and 65535, inclusive"]


@pytest.mark.parametrize("name", ["a", "http", "web-2", "0-a", "a" * 15])
def test_names_of_ports(name):
    assert port_name_faults(name) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a" * 16, "must be no more than 15 bytes"),
        ("a_b", "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        ("80", "must contain at least one letter (a-z)"),
        ("a--b", "must not contain consecutive hyphens"),
        ("-a", "must not begin or end with a hyphen"),
        ("a-", "must not begin or end with a hyphen"),
    ],
)
def test_invalid_names_of_ports(name, fault):
    assert port_name_faults(name) == [fault]
