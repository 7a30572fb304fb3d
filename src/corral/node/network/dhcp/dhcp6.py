"""A DHCPv6 server (RFC 8415): the reply to a guest's request, from its lease.

There is one client and one address, so no state is kept.  Relayed messages are not the guest's own,
and are ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from corral.node.network.dhcp import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corral.node.network.dhcp.lease import Lease6

SERVER_PORT = 547
CLIENT_PORT = 546
ALL_SERVERS = IPv6Address("ff02::1:2")

_DUID_OF_MAC = b"\x00\x03\x00\x01"  # 11.4, for Ethernet
_MAX_DUID_BYTES = 130
_MAX_ASSOCIATIONS = 8
_INFINITY = 0xFFFFFFFF


class MessageType(IntEnum):
    """DHCPv6 message types (7.3)."""

    SOLICIT = 1
    ADVERTISE = 2
    REQUEST = 3
    CONFIRM = 4
    RENEW = 5
    REBIND = 6
    REPLY = 7
    RELEASE = 8
    DECLINE = 9
    INFORMATION_REQUEST = 11


class Option(IntEnum):
    """The options that are parsed or sent, by number (21; RFC 3646)."""

    CLIENT = 1
    SERVER = 2
    ASSOCIATION = 3
    ADDRESS = 5
    STATUS = 13
    RAPID_COMMIT = 14
    NAME_SERVERS = 23
    SEARCH = 24


class Status(IntEnum):
    """Status codes (21.13)."""

    SUCCESS = 0
    NO_ADDRESSES_AVAILABLE = 2
    NOT_ON_LINK = 4


_WITHOUT_SERVER_ID = {MessageType.SOLICIT, MessageType.CONFIRM, MessageType.REBIND}
_WITH_SERVER_ID = {MessageType.REQUEST, MessageType.RENEW, MessageType.RELEASE, MessageType.DECLINE}


@dataclass(frozen=True, slots=True)
class _Association:
    """An IA_NA: the client's identifier for an address, and the addresses that it proposes."""

    number: bytes
    addresses: tuple[IPv6Address, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    message: int
    transaction: bytes
    client: bytes
    server: bytes
    rapid: bool
    associations: tuple[_Association, ...]


def reply(packet: bytes, lease: Lease6, mac: bytes) -> bytes | None:
    """Return the reply of the server with the MAC address ``mac``; None if it sends none.

    Request and reply are the data of UDP packets.
    """
    request = _parse(packet)
    if request is None or not _is_ours(request, _DUID_OF_MAC + mac):
        return None
    match request.message:
        case MessageType.SOLICIT if not request.rapid:
            message, options = MessageType.ADVERTISE, _assign_address(request, lease)
        case MessageType.SOLICIT:
            message, options = MessageType.REPLY, _option(Option.RAPID_COMMIT, b"")
            options += _assign_address(request, lease)
        case MessageType.REQUEST | MessageType.RENEW | MessageType.REBIND:
            message, options = MessageType.REPLY, _assign_address(request, lease)
        case MessageType.CONFIRM if any(each.addresses for each in request.associations):
            message, options = MessageType.REPLY, _confirm(request, lease)
        case MessageType.RELEASE | MessageType.DECLINE:
            message, options = MessageType.REPLY, _status(Status.SUCCESS)
        case MessageType.INFORMATION_REQUEST:
            message, options = MessageType.REPLY, _dns_options(lease)
        case _:
            return None
    header = bytes([message]) + request.transaction + _option(Option.SERVER, _DUID_OF_MAC + mac)
    client = _option(Option.CLIENT, request.client) if request.client else b""
    return header + client + options


def _is_ours(request: _Request, server: bytes) -> bool:
    """Report whether the message is valid for the server with this DUID (16)."""
    if request.message in _WITH_SERVER_ID:
        return bool(request.client) and request.server == server
    if request.message in _WITHOUT_SERVER_ID:
        return bool(request.client) and not request.server
    return request.server in {b"", server} and not request.associations


def _assign_address(request: _Request, lease: Lease6) -> bytes:
    """Return the lease's address for the first association; an error for the others."""
    associations_reply = b""
    for index, association in enumerate(request.associations):
        if index == 0:
            suboptions = _address(lease.address.ip, _INFINITY)
        else:
            suboptions = _status(Status.NO_ADDRESSES_AVAILABLE)
        for address in association.addresses:
            if index or address != lease.address.ip:
                suboptions += _address(address, 0)  # lifetimes of 0 withdraw it (18.3.4)
        # T1 and T2 of 0: the client decides when to renew (21.4).
        associations_reply += _option(
            Option.ASSOCIATION, association.number + bytes(8) + suboptions
        )
    return associations_reply + _dns_options(lease)


def _confirm(request: _Request, lease: Lease6) -> bytes:
    addresses = {address for each in request.associations for address in each.addresses}
    is_on_link = addresses == {lease.address.ip}
    return _status(Status.SUCCESS if is_on_link else Status.NOT_ON_LINK) + _dns_options(lease)


def _dns_options(lease: Lease6) -> bytes:
    servers = b"".join(address.packed for address in lease.dns)
    domains = names.encode_list(lease.search)
    return (_option(Option.NAME_SERVERS, servers) if servers else b"") + (
        _option(Option.SEARCH, domains) if domains else b""
    )


def _address(address: IPv6Address, seconds: int) -> bytes:
    return _option(Option.ADDRESS, address.packed + struct.pack(">II", seconds, seconds))


def _status(status: Status) -> bytes:
    return _option(Option.STATUS, struct.pack(">H", status))


def _option(number: int, value: bytes) -> bytes:
    return struct.pack(">HH", number, len(value)) + value


def _parse(packet: bytes) -> _Request | None:
    if len(packet) < 4:
        return None
    parsed = list(_options(packet[4:]))
    single = dict(parsed)
    client, server = single.get(Option.CLIENT, b""), single.get(Option.SERVER, b"")
    if len(client) > _MAX_DUID_BYTES or len(server) > _MAX_DUID_BYTES:
        return None
    associations = (_association(value) for number, value in parsed if number == Option.ASSOCIATION)
    return _Request(
        message=packet[0],
        transaction=packet[1:4],
        client=client,
        server=server,
        rapid=Option.RAPID_COMMIT in single,
        associations=tuple(each for each in associations if each)[:_MAX_ASSOCIATIONS],
    )


def _association(value: bytes) -> _Association | None:
    if len(value) < 12:
        return None
    return _Association(
        number=value[:4],
        addresses=tuple(
            IPv6Address(suboptions[:16])
            for number, suboptions in _options(value[12:])
            if number == Option.ADDRESS and len(suboptions) >= 24
        )[:_MAX_ASSOCIATIONS],
    )


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the options in order; a truncated one ends them."""
    offset = 0
    while offset + 4 <= len(data):
        number, size = struct.unpack_from(">HH", data, offset)
        offset += 4
        if offset + size > len(data):
            return
        yield number, data[offset : offset + size]
        offset += size
