"""DHCP's server side (RFC 2131): a guest's request and its lease in, the answer out.

There is one client and one address, so nothing is remembered: every request is answered from the
lease alone. A request that came through a relay is not the guest's own, and is not answered.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from corral.node.network.dhcp import options4
from corral.node.network.dhcp.options4 import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.node.network.dhcp.lease import Lease

SERVER_PORT = 67
CLIENT_PORT = 68

BROADCAST = IPv4Address("255.255.255.255")
_NOWHERE = IPv4Address(0)

_REQUEST, _REPLY = 1, 2
_ETHERNET, _MAC_SIZE = 1, 6
_BROADCAST_FLAG = 0x8000
_HEAD = struct.Struct(">BBBBIHH4s4s4s4s16s64s128s4s")
_COOKIE = b"\x63\x82\x53\x63"
_SMALLEST_REPLY = 300  # BOOTP's size (RFC 1542, 2.1), which some clients insist on
_SMALLEST_ROOM = 576 - 28  # what each client must take (RFC 2131, 2), without IP's and UDP's heads
_LARGEST_ROOM = 1472


class Message(IntEnum):
    """What a message is: option 53 (RFC 2132, 9.6)."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


@dataclass(frozen=True, slots=True)
class _Request:
    transaction: int
    flags: int
    client: IPv4Address
    mac: bytes
    options: Mapping[int, bytes]

    @property
    def message(self) -> int:
        return int.from_bytes(self.options.get(Option.MESSAGE, b""), "big")

    def address(self, option: Option) -> IPv4Address | None:
        value = self.options.get(option, b"")
        return IPv4Address(value) if len(value) == 4 else None

    @property
    def room(self) -> int:
        """How long an answer may be, in bytes."""
        asked = int.from_bytes(self.options.get(Option.LARGEST_MESSAGE, b"")[:2], "big") - 28
        return min(max(asked, _SMALLEST_ROOM), _LARGEST_ROOM)


def answer(request: bytes, lease: Lease, mac: bytes) -> bytes | None:
    """What a server that gives `lease` to `mac` answers to `request`; None where it is silent.

    Both are the data of UDP packets; `destination` says where the answer goes.
    """
    asked = _parse(request)
    if asked is None or asked.mac != mac:
        return None
    chosen = asked.address(Option.SERVER)
    if chosen is not None and chosen != lease.server:
        return None  # the client speaks to another server
    match asked.message:
        case Message.DISCOVER:
            return _reply(asked, lease, Message.OFFER)
        case Message.REQUEST:
            return _answer_request(asked, lease)
        case Message.INFORM if asked.client == lease.address.ip:
            return _reply(asked, lease, Message.ACK)
    # The address stays the guest's, whether it declines it or gives it back.
    return None


def destination(reply: bytes) -> IPv4Address:
    """Where `reply`, made by `answer`, goes: to all, unless the guest uses its address already.

    RFC 2131, 4.1 lets a server broadcast what it cannot send to a guest without an address.
    """
    client: bytes = _HEAD.unpack_from(reply)[7]
    return IPv4Address(client) if client != _NOWHERE.packed else BROADCAST


def _answer_request(asked: _Request, lease: Lease) -> bytes | None:
    # An address that the client takes, or remembers, is in the option; one in use in the head.
    wanted = asked.address(Option.ADDRESS) or asked.client
    if wanted == _NOWHERE:
        return None
    return _reply(asked, lease, Message.ACK if wanted == lease.address.ip else Message.NAK)


def _parse(request: bytes) -> _Request | None:
    if len(request) < _HEAD.size:
        return None
    (
        op, kind, size, _hops, transaction, _seconds, flags,
        client, _yours, _next, relay, mac, server_name, file, cookie,
    ) = _HEAD.unpack_from(request)  # fmt: skip
    if (op, kind, size, cookie) != (_REQUEST, _ETHERNET, _MAC_SIZE, _COOKIE):
        return None
    if relay != _NOWHERE.packed:
        return None
    found = options4.parse(request[_HEAD.size :], file, server_name)
    return _Request(transaction, flags, IPv4Address(client), mac[:_MAC_SIZE], found)


def _reply(asked: _Request, lease: Lease, message: Message) -> bytes:
    informed = asked.message == Message.INFORM
    refused = message is Message.NAK
    values: list[tuple[int, bytes]] = [
        (Option.MESSAGE, bytes([message])),
        (Option.SERVER, lease.server.packed),
    ]
    if Option.CLIENT in asked.options:
        values.append((Option.CLIENT, asked.options[Option.CLIENT]))  # RFC 6842
    if not refused and not informed:
        values.append((Option.SECONDS, struct.pack(">I", lease.seconds)))
    if not refused:
        values += options4.of_lease(lease, asked.options.get(Option.WANTED, b""))
    offered = message is Message.OFFER
    head = _HEAD.pack(
        _REPLY, _ETHERNET, _MAC_SIZE, 0, asked.transaction, 0,
        asked.flags | (_BROADCAST_FLAG if refused else 0),
        (_NOWHERE if offered or refused else asked.client).packed,
        (_NOWHERE if informed or refused else lease.address.ip).packed,
        b"" if refused else _boot_server(lease), _NOWHERE.packed,
        asked.mac, b"", b"" if refused else _boot_file(lease), _COOKIE,
    )  # fmt: skip
    found = head + options4.write(values, asked.room - len(head))
    return found.ljust(_SMALLEST_REPLY, b"\0")


def _boot_server(lease: Lease) -> bytes:
    """Where firmware that boots from the network looks for its file, if that is an address."""
    try:
        return IPv4Address(lease.tftp_server_name).packed
    except ValueError:
        return b""


def _boot_file(lease: Lease) -> bytes:
    name = lease.boot_file_name.encode()
    return name if len(name) < 128 else b""
