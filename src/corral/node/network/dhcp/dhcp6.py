"""DHCPv6's server side (RFC 8415): a guest's request and its lease in, the answer out.

There is one client and one address, so nothing is remembered. Relayed messages are not the
guest's own, and are not answered.
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
_LONGEST_DUID = 130
_MOST_ASSOCIATIONS = 8
_FOREVER = 0xFFFFFFFF


class Message(IntEnum):
    """What a message is (7.3)."""

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
    """The options that are read or written, by number (21; RFC 3646)."""

    CLIENT = 1
    SERVER = 2
    ASSOCIATION = 3
    ADDRESS = 5
    STATUS = 13
    RAPID_COMMIT = 14
    NAME_SERVERS = 23
    SEARCH = 24


class Status(IntEnum):
    """How a request fared (21.13)."""

    SUCCESS = 0
    NO_ADDRESSES_AVAILABLE = 2
    NOT_ON_LINK = 4


_TO_ANY_SERVER = {Message.SOLICIT, Message.CONFIRM, Message.REBIND}
_TO_ONE_SERVER = {Message.REQUEST, Message.RENEW, Message.RELEASE, Message.DECLINE}


@dataclass(frozen=True, slots=True)
class _Association:
    """A client's name for an address that it wants (IA_NA), and the addresses it thinks of."""

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


def answer(request: bytes, lease: Lease6, mac: bytes) -> bytes | None:
    """What the server with the hardware address `mac` answers; None where it is silent.

    Both are the data of UDP packets.
    """
    asked = _parse(request)
    if asked is None or not _is_ours(asked, _DUID_OF_MAC + mac):
        return None
    match asked.message:
        case Message.SOLICIT if not asked.rapid:
            message, told = Message.ADVERTISE, _granted(asked, lease)
        case Message.SOLICIT:
            message, told = Message.REPLY, _option(Option.RAPID_COMMIT, b"")
            told += _granted(asked, lease)
        case Message.REQUEST | Message.RENEW | Message.REBIND:
            message, told = Message.REPLY, _granted(asked, lease)
        case Message.CONFIRM if any(each.addresses for each in asked.associations):
            message, told = Message.REPLY, _confirmed(asked, lease)
        case Message.RELEASE | Message.DECLINE:
            message, told = Message.REPLY, _status(Status.SUCCESS)
        case Message.INFORMATION_REQUEST:
            message, told = Message.REPLY, _names(lease)
        case _:
            return None
    head = bytes([message]) + asked.transaction + _option(Option.SERVER, _DUID_OF_MAC + mac)
    client = _option(Option.CLIENT, asked.client) if asked.client else b""
    return head + client + told


def _is_ours(asked: _Request, server: bytes) -> bool:
    """Whether the server named `server` is asked, and the client says who it is (16)."""
    if asked.message in _TO_ONE_SERVER:
        return bool(asked.client) and asked.server == server
    if asked.message in _TO_ANY_SERVER:
        return bool(asked.client) and not asked.server
    return asked.server in {b"", server} and not asked.associations


def _granted(asked: _Request, lease: Lease6) -> bytes:
    """The address, in the first association that the client asks for; the others get none."""
    given = b""
    for index, association in enumerate(asked.associations):
        if index == 0:
            inside = _address(lease.address.ip, _FOREVER)
        else:
            inside = _status(Status.NO_ADDRESSES_AVAILABLE)
        for address in association.addresses:
            if index or address != lease.address.ip:
                inside += _address(address, 0)  # no longer to be used (18.3.4)
        # Times of 0 leave it to the client when to renew (21.4).
        given += _option(Option.ASSOCIATION, association.number + bytes(8) + inside)
    return given + _names(lease)


def _confirmed(asked: _Request, lease: Lease6) -> bytes:
    addresses = {address for each in asked.associations for address in each.addresses}
    good = addresses == {lease.address.ip}
    return _status(Status.SUCCESS if good else Status.NOT_ON_LINK) + _names(lease)


def _names(lease: Lease6) -> bytes:
    servers = b"".join(address.packed for address in lease.dns)
    domains = names.listed(lease.search)
    return (_option(Option.NAME_SERVERS, servers) if servers else b"") + (
        _option(Option.SEARCH, domains) if domains else b""
    )


def _address(address: IPv6Address, seconds: int) -> bytes:
    return _option(Option.ADDRESS, address.packed + struct.pack(">II", seconds, seconds))


def _status(status: Status) -> bytes:
    return _option(Option.STATUS, struct.pack(">H", status))


def _option(number: int, value: bytes) -> bytes:
    return struct.pack(">HH", number, len(value)) + value


def _parse(request: bytes) -> _Request | None:
    if len(request) < 4:
        return None
    options = list(_options(request[4:]))
    single = dict(options)
    client, server = single.get(Option.CLIENT, b""), single.get(Option.SERVER, b"")
    if len(client) > _LONGEST_DUID or len(server) > _LONGEST_DUID:
        return None
    associations = (
        _association(value) for number, value in options if number == Option.ASSOCIATION
    )
    return _Request(
        message=request[0],
        transaction=request[1:4],
        client=client,
        server=server,
        rapid=Option.RAPID_COMMIT in single,
        associations=tuple(each for each in associations if each)[:_MOST_ASSOCIATIONS],
    )


def _association(value: bytes) -> _Association | None:
    if len(value) < 12:
        return None
    return _Association(
        number=value[:4],
        addresses=tuple(
            IPv6Address(inside[:16])
            for number, inside in _options(value[12:])
            if number == Option.ADDRESS and len(inside) >= 24
        )[:_MOST_ASSOCIATIONS],
    )


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The options one after the other; what is cut off is left out."""
    at = 0
    while at + 4 <= len(data):
        number, size = struct.unpack_from(">HH", data, at)
        at += 4
        if at + size > len(data):
            return
        yield number, data[at : at + size]
        at += size
