"""DHCP options (RFC 2132): parsing a request's, encoding a lease's."""

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
_MAX_OPTION_BYTES = 255
_IN_FILE, _IN_SERVER_NAME = 1, 2
_ON_LINK = IPv4Address(0)  # the gateway of an on-link route (RFC 3442)
_ALL_ADDRESSES = IPv4Network("0.0.0.0/0")


class Option(IntEnum):
    """The options that are parsed or sent, by number."""

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
    PARAMETERS = 55
    MAX_MESSAGE_SIZE = 57
    CLIENT = 61
    TFTP_SERVER = 66
    BOOT_FILE = 67
    SEARCH = 119
    ROUTES = 121


def parse(options: bytes, file: bytes = b"", server_name: bytes = b"") -> dict[int, bytes]:
    """Return the options by number; a truncated one ends them.

    The fields ``file`` and ``sname`` may contain more of them (RFC 2131, 4.1).  A split option is
    joined (RFC 3396).
    """
    parsed: dict[int, bytes] = {}
    _parse_into(options, parsed)
    overload = int.from_bytes(parsed.get(Option.OVERLOAD, b""), "big")
    if overload & _IN_FILE:
        _parse_into(file, parsed)
    if overload & _IN_SERVER_NAME:
        _parse_into(server_name, parsed)
    return parsed


def _parse_into(options: bytes, parsed: dict[int, bytes]) -> None:
    offset = 0
    while offset < len(options) and options[offset] != _END:
        number = options[offset]
        offset += 1
        if number == _PAD:
            continue
        if offset == len(options) or offset + 1 + options[offset] > len(options):
            return
        size = options[offset]
        parsed[number] = parsed.get(number, b"") + options[offset + 1 : offset + 1 + size]
        offset += 1 + size


def encode(options: Iterable[tuple[int, bytes]], max_bytes: int) -> bytes:
    """Return the options that fit into ``max_bytes`` bytes, and the end option.

    Long ones are split (RFC 3396), empty ones left out.
    """
    encoded = bytearray()
    for number, value in options:
        parts = [
            value[offset : offset + _MAX_OPTION_BYTES]
            for offset in range(0, len(value), _MAX_OPTION_BYTES)
        ]
        wire = b"".join(bytes([number, len(part)]) + part for part in parts)
        if len(encoded) + len(wire) < max_bytes:
            encoded += wire
    return bytes(encoded) + bytes([_END])


def lease_options(lease: Lease, requested: bytes) -> list[tuple[int, bytes]]:
    """Return the options for a lease, the most important ones first.

    ``requested`` is the client's parameter request list.  It only selects the form of the routes:
    clients ignore unknown options.
    """
    network = lease.address.network
    options: list[tuple[int, bytes]] = [
        (Option.MASK, network.netmask.packed),
        *_routes(lease, requested),
        (Option.NAME_SERVERS, _addresses(lease.dns)),
        (Option.MTU, struct.pack(">H", lease.mtu)),
        (Option.BROADCAST, network.broadcast_address.packed),
        (Option.HOST_NAME, lease.hostname.encode()),
        (Option.DOMAIN, lease.search[0].encode() if lease.search else b""),
        (Option.SEARCH, names.encode_compressed(lease.search)),
        (Option.TFTP_SERVER, lease.tftp_server_name.encode()),
        (Option.BOOT_FILE, lease.boot_file_name.encode()),
        (Option.TIME_SERVERS, _addresses(lease.ntp_servers)),
    ]
    return options + list(lease.private_options)


def _routes(lease: Lease, requested: bytes) -> list[tuple[int, bytes]]:
    """Return the default route and the others.

    A client that uses option 121 ignores 3 and 33 (RFC 3442), so 121 includes the default route.
    """
    gateway = lease.gateway
    options: list[tuple[int, bytes]] = [(Option.ROUTERS, gateway.packed)] if gateway else []
    is_outside_prefix = gateway is not None and gateway not in lease.address.network
    if not lease.routes and not is_outside_prefix:
        return options
    if requested and Option.ROUTES not in requested:
        return [*options, (Option.HOST_ROUTES, b"".join(map(_host_route, lease.routes)))]
    to_gateway = (
        _classless(IPv4Network(gateway), _ON_LINK) if gateway and is_outside_prefix else b""
    )
    routes = b"".join(_classless(route.destination, route.gateway) for route in lease.routes)
    default = _classless(_ALL_ADDRESSES, gateway) if gateway else b""
    return [*options, (Option.ROUTES, to_gateway + routes + default)]


def _host_route(route: Route) -> bytes:
    """Return a route for clients without option 121; empty if it is not a host route."""
    if route.gateway is None or route.destination.prefixlen != 32:
        return b""
    return route.destination.network_address.packed + route.gateway.packed


def _classless(destination: IPv4Network, gateway: IPv4Address | None) -> bytes:
    size = (destination.prefixlen + 7) // 8
    prefix = bytes([destination.prefixlen]) + destination.network_address.packed[:size]
    return prefix + (gateway or _ON_LINK).packed


def _addresses(addresses: Iterable[IPv4Address]) -> bytes:
    return b"".join(address.packed for address in addresses)
