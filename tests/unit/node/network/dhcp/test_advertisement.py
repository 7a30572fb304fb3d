"""Router advertisements, read option by option; numbers are RFC 4861's and 8106's."""

import struct
from dataclasses import replace
from ipaddress import IPv6Address

import pytest
from dnslib import DNSBuffer
from hypothesis import given, strategies as st
from tests.unit.node.network.dhcp.packets import LEASE6, RECORDED, ROUTER, SEARCH

from corral.node.network.dhcp import advertisement
from corral.node.network.dhcp.advertisement import is_solicitation

SOLICITATION = RECORDED["kernel router solicitation"]


def options(message: bytes) -> dict[int, bytes]:
    data, found = message[16:], {}
    while data:
        size = 8 * data[1]
        assert 0 < size <= len(data)
        found[data[0]] = data[2:size]
        data = data[size:]
    return found


def test_router_advertisements_point_to_dhcp():
    message = advertisement.advertise(LEASE6, ROUTER)
    kind, code, _sum, hops, flags, seconds, _, _ = struct.unpack_from(">BBHBBHII", message)
    assert (kind, code, hops, seconds) == (134, 0, 64, 65535)
    assert flags == 0x80 | 0x40, "managed, other"
    prefix = options(message)[3]
    assert prefix[:2] == bytes([120, 0x80]), "on the link, but no address is made from it"
    assert prefix[2:10] == b"\xff" * 8
    assert IPv6Address(prefix[14:30]) == IPv6Address("fd10:0:2::")


def test_router_advertisements_have_router_mtu_and_dns_servers():
    options_ = options(advertisement.advertise(LEASE6, ROUTER))
    assert options_[1] == ROUTER
    assert struct.unpack(">2xI", options_[5]) == (1450,)
    assert options_[25] == bytes(2) + b"\xff" * 4 + LEASE6.dns[0].packed
    buffer = DNSBuffer(options_[31][6:])
    assert [str(buffer.decode_name()) for _ in SEARCH] == [f"{name}." for name in SEARCH]


def test_router_advertisements_without_dns():
    bare = replace(LEASE6, dns=(), search=())
    assert set(options(advertisement.advertise(bare, ROUTER))) == {1, 3, 5}


def test_router_solicitations_are_recognized():
    assert is_solicitation(SOLICITATION, 255)
    assert is_solicitation(SOLICITATION[:8], 255)


@pytest.mark.parametrize(
    ("data", "hops"),
    [
        (SOLICITATION, 254),
        (SOLICITATION[:7], 255),
        (SOLICITATION[:12], 255),
        (b"\x86" + SOLICITATION[1:], 255),
        (b"\x85\x01" + SOLICITATION[2:], 255),
        (SOLICITATION[:8] + bytes(8), 255),
        (b"", 255),
    ],
    ids=["routed", "short", "cut off", "advertisement", "code", "option of no size", "nothing"],
)
def test_invalid_solicitations_get_no_response(data, hops):
    assert not is_solicitation(data, hops)


@given(st.binary(max_size=100), st.integers(0, 255))
def test_any_bytes_are_parsed(data, hops):
    is_solicitation(data, hops)
    assert is_solicitation(b"\x85\0" + data, 254) is False
