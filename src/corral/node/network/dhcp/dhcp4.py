"""A DHCP server (RFC 2131): the reply to a guest's request, from its lease.

There is one client and one address, so no state is kept: each request is answered from the lease.
Relayed requests are not the guest's own, and are ignored.
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
_UNSPECIFIED = IPv4Address(0)

_REQUEST, _REPLY = 1, 2
_ETHERNET, _MAC_SIZE = 1, 6
_BROADCAST_FLAG = 0x8000
_HEADER = struct.Struct(">BBBBIHH4s4s4s4s16s64s128s4s")
_COOKIE = b"\x63\x82\x53\x63"
_MIN_REPLY_BYTES = 300  # BOOTP's size (RFC 1542, 2.1), which some clients require
_MIN_MESSAGE_BYTES = 576 - 28  # what each client must accept (RFC 2131, 2), without headers
_MAX_MESSAGE_BYTES = 1472


class MessageType(IntEnum):
    """DHCP message types: option 53 (RFC 2132, 9.6)."""

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
    def max_bytes(self) -> int:
        """The maximum length of a reply, in bytes."""
        size = int.from_bytes(self.options.get(Option.MAX_MESSAGE_SIZE, b"")[:2], "big") - 28
        return min(max(size, _MIN_MESSAGE_BYTES), _MAX_MESSAGE_BYTES)


def reply(packet: bytes, lease: Lease, mac: bytes) -> bytes | None:
    """Return the reply of a server that leases ``lease`` to ``mac``; None if it sends none.

    Request and reply are the data of UDP packets; ``destination`` returns the address of the reply.
    """
    request = _parse(packet)
    if request is None or request.mac != mac:
        return None
    server_id = request.address(Option.SERVER)
    if server_id is not None and server_id != lease.server:
        return None  # the client speaks to another server
    match request.message:
        case MessageType.DISCOVER:
            return _build_reply(request, lease, MessageType.OFFER)
        case MessageType.REQUEST:
            return _reply_to_request(request, lease)
        case MessageType.INFORM if request.client == lease.address.ip:
            return _build_reply(request, lease, MessageType.ACK)
    # RELEASE and DECLINE: the address stays the guest's.
    return None


def destination(reply: bytes) -> IPv4Address:
    """Return the destination of a reply: broadcast, unless the guest uses its address already.

    RFC 2131, 4.1 lets a server broadcast what it cannot send to a guest without an address.
    """
    client: bytes = _HEADER.unpack_from(reply)[7]
    return IPv4Address(client) if client != _UNSPECIFIED.packed else BROADCAST


def _reply_to_request(request: _Request, lease: Lease) -> bytes | None:
    # SELECTING and INIT-REBOOT have the address in the option, RENEWING and REBINDING in ciaddr.
    requested = request.address(Option.ADDRESS) or request.client
    if requested == _UNSPECIFIED:
        return None
    return _build_reply(
        request, lease, MessageType.ACK if requested == lease.address.ip else MessageType.NAK
    )


def _parse(packet: bytes) -> _Request | None:
    if len(packet) < _HEADER.size:
        return None
    (
        op, kind, size, _hops, transaction, _seconds, flags,
        client, _yours, _next, relay, mac, server_name, file, cookie,
    ) = _HEADER.unpack_from(packet)  # fmt: skip
    if (op, kind, size, cookie) != (_REQUEST, _ETHERNET, _MAC_SIZE, _COOKIE):
        return None
    if relay != _UNSPECIFIED.packed:
        return None
    options = options4.parse(packet[_HEADER.size :], file, server_name)
    return _Request(transaction, flags, IPv4Address(client), mac[:_MAC_SIZE], options)


def _build_reply(request: _Request, lease: Lease, message: MessageType) -> bytes:
    is_inform = request.message == MessageType.INFORM
    is_nak = message is MessageType.NAK
    values: list[tuple[int, bytes]] = [
        (Option.MESSAGE, bytes([message])),
        (Option.SERVER, lease.server.packed),
    ]
    if Option.CLIENT in request.options:
        values.append((Option.CLIENT, request.options[Option.CLIENT]))  # RFC 6842
    if not is_nak and not is_inform:
        values.append((Option.SECONDS, struct.pack(">I", lease.seconds)))
    if not is_nak:
        values += options4.lease_options(lease, request.options.get(Option.PARAMETERS, b""))
    is_offer = message is MessageType.OFFER
    header = _HEADER.pack(
        _REPLY, _ETHERNET, _MAC_SIZE, 0, request.transaction, 0,
        request.flags | (_BROADCAST_FLAG if is_nak else 0),
        (_UNSPECIFIED if is_offer or is_nak else request.client).packed,
        (_UNSPECIFIED if is_inform or is_nak else lease.address.ip).packed,
        b"" if is_nak else _boot_server(lease), _UNSPECIFIED.packed,
        request.mac, b"", b"" if is_nak else _boot_file(lease), _COOKIE,
    )  # fmt: skip
    options = header + options4.encode(values, request.max_bytes - len(header))
    return options.ljust(_MIN_REPLY_BYTES, b"\0")


def _boot_server(lease: Lease) -> bytes:
    """Return siaddr for network boot firmware: the TFTP server, if its name is an address."""
    try:
        return IPv4Address(lease.tftp_server_name).packed
    except ValueError:
        return b""


def _boot_file(lease: Lease) -> bytes:
    name = lease.boot_file_name.encode()
    return name if len(name) < 128 else b""
