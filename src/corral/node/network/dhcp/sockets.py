"""Sockets for DHCP, DHCPv6 and router solicitations on a pod's bridge.

They are opened in the pod's namespace, and used in that of the manager.
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

MAX_REQUEST_BYTES = 2048
"""The longest request that is read completely."""

_BUFFER_BYTES = 16 << 10  # requests that wait while a flooding guest is not read
_HOP_LIMIT = 255  # neighbour discovery ignores forwarded packets
_ICMP6_FILTER = 1
_SO_NO_CHECK = 11
_IP_PKTINFO = 8


def dhcp4_socket(device: str) -> socket.socket:
    """Open a DHCP server socket on a device.  Raises OSError, as do the others."""
    socket_ = _open(device, socket.AF_INET, socket.SOCK_DGRAM, 0)
    with _close_on_error(socket_):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        # Checksum offload leaves checksums incomplete, and clients that read raw packets reject
        # those: send none at all.
        socket_.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        # In bridge mode the device has no address, and replies come from the gateway's.
        socket_.setsockopt(socket.SOL_IP, socket.IP_TRANSPARENT, 1)
        socket_.bind(("0.0.0.0", dhcp4.SERVER_PORT))  # noqa: S104 - of one device
    return socket_


def dhcp6_socket(device: str) -> socket.socket:
    """Open a DHCPv6 server socket on a device, which must have a link-local address."""
    socket_ = _open(device, socket.AF_INET6, socket.SOCK_DGRAM, 0)
    with _close_on_error(socket_):
        socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _join(socket_, device, dhcp6.ALL_SERVERS)
        socket_.bind(("::", dhcp6.SERVER_PORT))
    return socket_


def solicitation_socket(device: str) -> socket.socket:
    """Open a socket for router solicitations on a device, which must have a link-local address."""
    socket_ = _open(device, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    with _close_on_error(socket_):
        socket_.setsockopt(
            socket.IPPROTO_ICMPV6, _ICMP6_FILTER, _only_type(advertisement.SOLICITATION)
        )
        socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOP_LIMIT)
        _join(socket_, device, advertisement.ALL_ROUTERS)
    return socket_


def hop_limit(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the hop limit of a message that ``recvmsg`` has received."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT):
            return int.from_bytes(data, sys.byteorder)
    return 0


def from_address(address: IPv4Address) -> list[tuple[int, int, bytes]]:
    """Return ancillary data for ``sendmsg`` that sets the source, even to a foreign address."""
    any_device = 0
    return [(socket.SOL_IP, _IP_PKTINFO, struct.pack("=I4s4s", any_device, address.packed, b""))]


def _open(device: str, family: int, kind: int, protocol: int) -> socket.socket:
    socket_ = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    with _close_on_error(socket_):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return socket_


@contextmanager
def _close_on_error(socket_: socket.socket) -> Iterator[None]:
    try:
        yield
    except OSError:
        socket_.close()
        raise


def _join(socket_: socket.socket, device: str, group: IPv6Address) -> None:
    member = group.packed + struct.pack("=I", socket.if_nametoindex(device))
    socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)


def _only_type(type_: int) -> bytes:
    """Return an ICMPv6 filter (RFC 3542, 3.2): a set bit blocks its message type."""
    words = [0xFFFFFFFF] * 8
    words[type_ // 32] &= ~(1 << type_ % 32)
    return struct.pack("=8I", *words)
