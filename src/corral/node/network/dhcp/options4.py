"""DHCP's options (RFC 2132): those of a request read, those of a lease written."""

from __future__ import annotations

import struct
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from corral.node.network.dhcp import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from corral.node.network.dhcp.lease import Lease, Route

_PAD, _END = 0, 255
_LONGEST = 255
_IN_FILE, _IN_SERVER_NAME = 1, 2
_ON_LINK = IPv4Address(0)  # the router of a destination on the link (RFC 3442)
_EVERYWHERE = IPv4Network("0.0.0.0/0")


class Option(IntEnum):
    """The options that are read or written, by number."""

    MASK = 1
    ROUTERS = 3
    NAME_SERVERS = 6
    HOST_NAME = 12
    DOMAIN = 15
    MTU = 26
    BROADCAST = 28
    HOST_ROUTES = 33
    TIME_SERVERS = 42
    ADDRESS = 50
    SECONDS = 51
    OVERLOAD = 52
    MESSAGE = 53
    SERVER = 54
    WANTED = 55
    LARGEST_MESSAGE = 57
    CLIENT = 61
    TFTP_SERVER = 66
    BOOT_FILE = 67
    SEARCH = 119
    ROUTES = 121


def parse(options: bytes, file: bytes = b"", server_name: bytes = b"") -> dict[int, bytes]:
    """The options by number; what is cut off is left out.

    The two fields may hold more of them (RFC 2131, 4.1). A divided option is joined (RFC 3396).
    """
    found: dict[int, bytes] = {}
    _gather(options, found)
    overload = int.from_bytes(found.get(Option.OVERLOAD, b""), "big")
    if overload & _IN_FILE:
        _gather(file, found)
    if overload & _IN_SERVER_NAME:
        _gather(server_name, found)
    return found


def _gather(options: bytes, found: dict[int, bytes]) -> None:
    at = 0
    while at < len(options) and options[at] != _END:
        number = options[at]
        at += 1
        if number == _PAD:
            continue
        if at == len(options) or at + 1 + options[at] > len(options):
            return
        size = options[at]
        found[number] = found.get(number, b"") + options[at + 1 : at + 1 + size]
        at += 1 + size


def write(options: Iterable[tuple[int, bytes]], room: int) -> bytes:
    """The options and their end mark, in at most `room` bytes: what does not fit is left out.

    Long ones are divided (RFC 3396), empty ones not written.
    """
    out = bytearray()
    for number, value in options:
        parts = [value[at : at + _LONGEST] for at in range(0, len(value), _LONGEST)]
        wire = b"".join(bytes([number, len(part)]) + part for part in parts)
        if len(out) + len(wire) < room:
            out += wire
    return bytes(out) + bytes([_END])


def of_lease(lease: Lease, wanted: bytes) -> list[tuple[int, bytes]]:
    """The options that describe `lease`, what matters most first.

    `wanted` are the numbers that the client asks for. They decide only how routes are told:
    what a client does not know it leaves alone.
    """
    network = lease.address.network
    told: list[tuple[int, bytes]] = [
        (Option.MASK, network.netmask.packed),
        *_routes(lease, wanted),
        (Option.NAME_SERVERS, _addresses(lease.dns)),
        (Option.MTU, struct.pack(">H", lease.mtu)),
        (Option.BROADCAST, network.broadcast_address.packed),
        (Option.HOST_NAME, lease.hostname.encode()),
        (Option.DOMAIN, lease.search[0].encode() if lease.search else b""),
        (Option.SEARCH, names.compressed(lease.search)),
        (Option.TFTP_SERVER, lease.tftp_server_name.encode()),
        (Option.BOOT_FILE, lease.boot_file_name.encode()),
        (Option.TIME_SERVERS, _addresses(lease.ntp_servers)),
    ]
    return told + list(lease.private_options)


def _routes(lease: Lease, wanted: bytes) -> list[tuple[int, bytes]]:
    """The default route and the others.

    Who takes option 121 leaves 3 and 33 alone (RFC 3442), so it holds the default route too.
    """
    gateway = lease.gateway
    told: list[tuple[int, bytes]] = [(Option.ROUTERS, gateway.packed)] if gateway else []
    beyond = gateway is not None and gateway not in lease.address.network
    if not lease.routes and not beyond:
        return told
    if wanted and Option.ROUTES not in wanted:
        return [*told, (Option.HOST_ROUTES, b"".join(map(_host_route, lease.routes)))]
    to_gateway = _classless(IPv4Network(gateway), _ON_LINK) if gateway and beyond else b""
    others = b"".join(_classless(route.destination, route.gateway) for route in lease.routes)
    default = _classless(_EVERYWHERE, gateway) if gateway else b""
    return [*told, (Option.ROUTES, to_gateway + others + default)]


def _host_route(route: Route) -> bytes:
    """For clients that know no prefixes: a route to one host; nothing if it is to more."""
    if route.gateway is None or route.destination.prefixlen != 32:
        return b""
    return route.destination.network_address.packed + route.gateway.packed


def _classless(destination: IPv4Network, gateway: IPv4Address | None) -> bytes:
    size = (destination.prefixlen + 7) // 8
    head = bytes([destination.prefixlen]) + destination.network_address.packed[:size]
    return head + (gateway or _ON_LINK).packed


def _addresses(addresses: Iterable[IPv4Address]) -> bytes:
    return b"".join(address.packed for address in addresses)
