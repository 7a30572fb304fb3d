"""The sockets that hear what a guest asks of its router, on the device that its card is plugged to.

They are made inside the pod's namespace and used from wherever the manager is.
"""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from corral.node.network.dhcp import advertisement, dhcp4, dhcp6

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Address, IPv6Address

LONGEST = 2048
"""Bytes of the longest request that is read whole."""

_BUFFER_BYTES = 16 << 10  # what waits while a guest that floods is not listened to
_HOPS = 255  # neighbour discovery takes nothing that a router may have passed on
_ICMP6_FILTER = 1
_SO_NO_CHECK = 11
_IP_PKTINFO = 8


def hear_dhcp4(device: str) -> socket.socket:
    """Hears DHCP on `device`. Raises OSError, as do the others."""
    heard = _opened(device, socket.AF_INET, socket.SOCK_DGRAM, 0)
    with _closed_unless_ready(heard):
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        # The guest's card may leave checksums to its driver, which clients that read raw packets do
        # not notice: without any they have nothing to doubt.
        heard.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        # Where the guest has the pod's own address the device has none, and ours is the router's.
        heard.setsockopt(socket.SOL_IP, socket.IP_TRANSPARENT, 1)
        heard.bind(("0.0.0.0", dhcp4.SERVER_PORT))  # noqa: S104 - of one device
    return heard


def hear_dhcp6(device: str) -> socket.socket:
    """Hears DHCPv6 on `device`, which must have IPv6 and a link-local address."""
    heard = _opened(device, socket.AF_INET6, socket.SOCK_DGRAM, 0)
    with _closed_unless_ready(heard):
        heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _join(heard, device, dhcp6.ALL_SERVERS)
        heard.bind(("::", dhcp6.SERVER_PORT))
    return heard


def hear_solicitations(device: str) -> socket.socket:
    """Hears router solicitations on `device`, which must have IPv6 and a link-local address."""
    heard = _opened(device, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    with _closed_unless_ready(heard):
        heard.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, _only(advertisement.SOLICITATION))
        heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOPS)
        _join(heard, device, advertisement.ALL_ROUTERS)
    return heard


def hops_left(ancillary: list[tuple[int, int, bytes]]) -> int:
    """How far a message that `recvmsg` brought may still have gone."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT):
            return int.from_bytes(data, sys.byteorder)
    return 0


def from_address(address: IPv4Address) -> list[tuple[int, int, bytes]]:
    """For `sendmsg`: that a packet comes from `address`, be it the device's or not."""
    any_device = 0
    return [(socket.SOL_IP, _IP_PKTINFO, struct.pack("=I4s4s", any_device, address.packed, b""))]


def _opened(device: str, family: int, kind: int, protocol: int) -> socket.socket:
    heard = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    with _closed_unless_ready(heard):
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return heard


@contextmanager
def _closed_unless_ready(heard: socket.socket) -> Iterator[None]:
    try:
        yield
    except OSError:
        heard.close()
        raise


def _join(heard: socket.socket, device: str, group: IPv6Address) -> None:
    member = group.packed + struct.pack("=I", socket.if_nametoindex(device))
    heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)


def _only(message: int) -> bytes:
    """ICMPv6's filter (RFC 3542, 3.2): a bit for each type that is not to be heard."""
    words = [0xFFFFFFFF] * 8
    words[message // 32] &= ~(1 << message % 32)
    return struct.pack("=8I", *words)
