"""Router advertisements (RFC 4861, 4.2; names by RFC 8106): a guest's way out, and where to ask.

The guest is told to ask DHCPv6 for its address, and not to make one up: traffic for the pod is
translated to that one address.
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
_FROM_THE_LINK = 255  # hops left in what no router passed on
_HOPS = 64
_ASK_DHCP = 0x80 | 0x40  # for the address, and for all else
_ROUTER_SECONDS = 0xFFFF  # the longest there is (RFC 8319)
_FOREVER = 0xFFFFFFFF
_ON_LINK = 0x80  # the prefix is, but no address is to be made from it
_SOURCE_MAC, _PREFIX, _MTU, _NAME_SERVERS, _SEARCH = 1, 3, 5, 25, 31


def is_solicitation(data: bytes, hops: int) -> bool:
    """Whether the ICMPv6 message `data` asks for an advertisement (RFC 4861, 6.1.1)."""
    return (
        len(data) >= _SOLICITATION_SIZE
        and data[0] == SOLICITATION
        and data[1] == 0
        and hops == _FROM_THE_LINK
        and _options_are_whole(data[_SOLICITATION_SIZE:])
    )


def write(lease: Lease6, mac: bytes) -> bytes:
    """The message of the router with the hardware address `mac`; the kernel adds its checksum."""
    network = lease.address.network
    reachable = retransmit = 0  # as the guest likes it
    head = struct.pack(
        ">BBHBBHII", _ADVERTISEMENT, 0, 0, _HOPS, _ASK_DHCP, _ROUTER_SECONDS, reachable, retransmit
    )
    told = _option(_SOURCE_MAC, mac)
    told += _option(_MTU, struct.pack(">2xI", lease.mtu))
    prefix = struct.pack(">BBIII", network.prefixlen, _ON_LINK, _FOREVER, _FOREVER, 0)
    told += _option(_PREFIX, prefix + network.network_address.packed)
    if lease.dns:
        servers = b"".join(address.packed for address in lease.dns)
        told += _option(_NAME_SERVERS, struct.pack(">2xI", _FOREVER) + servers)
    if domains := names.listed(lease.search):
        told += _option(_SEARCH, struct.pack(">2xI", _FOREVER) + domains)
    return head + told


def _option(number: int, value: bytes) -> bytes:
    """The option, filled up to whole words of eight bytes, which its size counts."""
    words = (2 + len(value) + 7) // 8
    return (bytes([number, words]) + value).ljust(8 * words, b"\0")


def _options_are_whole(options: bytes) -> bool:
    at = 0
    while at + 1 < len(options) and options[at + 1]:
        at += 8 * options[at + 1]
    return at == len(options)
