"""Router advertisements (RFC 4861, 4.2; DNS by RFC 8106).

The guest is to use DHCPv6 for its address, not SLAAC: traffic for the pod is translated to that one
address.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from corral.node.network.dhcp import names

if TYPE_CHECKING:
    from corral.node.network.dhcp.lease import Lease6

ALL_NODES = IPv6Address("ff02::1")
ALL_ROUTERS = IPv6Address("ff02::2")
SOLICITATION = 133

_ADVERTISEMENT = 134
_SOLICITATION_SIZE = 8
_HOP_LIMIT_ON_LINK = 255  # no router has forwarded the packet
_CURRENT_HOP_LIMIT = 64
_MANAGED_AND_OTHER = 0x80 | 0x40  # M and O flags: address, and other configuration, by DHCPv6
_ROUTER_LIFETIME_SECONDS = 0xFFFF  # the maximum (RFC 8319)
_INFINITY = 0xFFFFFFFF
_ON_LINK_FLAG = 0x80  # without the A flag: no SLAAC from this prefix
_SOURCE_MAC, _PREFIX, _MTU, _NAME_SERVERS, _SEARCH = 1, 3, 5, 25, 31


def is_solicitation(data: bytes, hops: int) -> bool:
    """Report whether an ICMPv6 message is a valid router solicitation (RFC 4861, 6.1.1)."""
    return (
        len(data) >= _SOLICITATION_SIZE
        and data[0] == SOLICITATION
        and data[1] == 0
        and hops == _HOP_LIMIT_ON_LINK
        and _options_are_valid(data[_SOLICITATION_SIZE:])
    )


def advertise(lease: Lease6, mac: bytes) -> bytes:
    """Return the advertisement of the router with this MAC; the kernel adds the checksum."""
    network = lease.address.network
    reachable = retransmit = 0  # unspecified: the guest's defaults
    header = struct.pack(
        ">BBHBBHII",
        _ADVERTISEMENT,
        0,
        0,
        _CURRENT_HOP_LIMIT,
        _MANAGED_AND_OTHER,
        _ROUTER_LIFETIME_SECONDS,
        reachable,
        retransmit,
    )
    options = _option(_SOURCE_MAC, mac)
    options += _option(_MTU, struct.pack(">2xI", lease.mtu))
    prefix = struct.pack(">BBIII", network.prefixlen, _ON_LINK_FLAG, _INFINITY, _INFINITY, 0)
    options += _option(_PREFIX, prefix + network.network_address.packed)
    if lease.dns:
        servers = b"".join(address.packed for address in lease.dns)
        options += _option(_NAME_SERVERS, struct.pack(">2xI", _INFINITY) + servers)
    if domains := names.encode_list(lease.search):
        options += _option(_SEARCH, struct.pack(">2xI", _INFINITY) + domains)
    return header + options


def _option(number: int, value: bytes) -> bytes:
    """Return an option, padded to words of eight bytes, which its length counts."""
    words = (2 + len(value) + 7) // 8
    return (bytes([number, words]) + value).ljust(8 * words, b"\0")


def _options_are_valid(options: bytes) -> bool:
    offset = 0
    while offset + 1 < len(options) and options[offset + 1]:
        offset += 8 * options[offset + 1]
    return offset == len(options)
