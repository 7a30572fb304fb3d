"""Netlink messages: encoding, decoding, requests and dumps (netlink(7)).

Written by hand: a pod's network takes a dozen messages, and the overhead of a general library for
each exceeds the time that the kernel needs for all of them.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Final, Self

NETLINK_ROUTE: Final = 0
"""Protocol of links, addresses and routes (rtnetlink(7))."""
NETLINK_NETFILTER: Final = 12
"""Protocol of nftables and connection tracking."""
NETLINK_GENERIC: Final = 16
"""Protocol of families that are found by name, such as WireGuard's."""
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400

_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP = 0x1, 0x4, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLA_F_NESTED: Final = 0x8000
_NLA_TYPE_MASK: Final = 0x3FFF
_RECEIVE_BYTES: Final = 1 << 16
_TIMEOUT_SECONDS: Final = 10.0
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")


class NetlinkSocket:
    """A netlink socket in the network namespace of the calling thread."""

    def __init__(self, protocol: int) -> None:
        """Open a socket of a protocol such as ``NETLINK_ROUTE``.  Raises OSError."""
        self._socket = _open(protocol)

    def dump(self, type_: int, body: bytes) -> Iterator[bytes]:
        """Request a dump, and return the bodies of its messages.  Raises OSError."""
        self._socket.send(encode_message(type_, _NLM_F_REQUEST | _NLM_F_DUMP, body))
        return self._replies()

    def request(self, type_: int, body: bytes, flags: int = 0) -> None:
        """Send a request, and wait for its acknowledgement.  Raises OSError."""
        self._socket.send(encode_message(type_, _NLM_F_REQUEST | _NLM_F_ACK | flags, body))
        for _ in self._replies():
            pass

    def query(self, type_: int, body: bytes) -> list[bytes]:
        """Send a request, and return the bodies that answer it.  Raises OSError."""
        self._socket.send(encode_message(type_, _NLM_F_REQUEST | _NLM_F_ACK, body))
        return list(self._replies())

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _replies(self) -> Iterator[bytes]:
        while True:
            for type_, body in decode_messages(self._socket.recv(_RECEIVE_BYTES)):
                if type_ == _NLMSG_DONE:
                    return
                if type_ == _NLMSG_ERROR:
                    code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                yield body


def _open(protocol: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    opened.settimeout(_TIMEOUT_SECONDS)
    return opened


def encode_message(type_: int, flags: int, body: bytes) -> bytes:
    """Return a message with its header."""
    return _HEADER.pack(_HEADER.size + len(body), type_, flags, 1, 0) + body


def decode_messages(packet: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the type and the body of each message in a packet."""
    while len(packet) >= _HEADER.size:
        length, type_, *_ = _HEADER.unpack_from(packet)
        if length < _HEADER.size:
            return
        yield type_, packet[_HEADER.size : length]
        packet = packet[_aligned(length) :]


def attribute(type_: int, value: bytes) -> bytes:
    """Return an attribute, padded to a multiple of four bytes."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, type_) + value + bytes(_aligned(length) - length)


def nested(type_: int, *values: bytes) -> bytes:
    """Return an attribute that consists of attributes."""
    return attribute(type_ | _NLA_F_NESTED, b"".join(values))


def u16(value: int) -> bytes:
    """Return an integer of 16 bits in the host's byte order."""
    return struct.pack("=H", value)


def u32(value: int) -> bytes:
    """Return an integer as most attributes carry it: 32 bits in the host's byte order."""
    return struct.pack("=I", value)


def cstring(value: str) -> bytes:
    """Return a zero-terminated string."""
    return value.encode() + b"\0"


def mac_bytes(address: str) -> bytes:
    """Return the bytes of a MAC address such as ``02:00:00:00:00:01``."""
    return bytes.fromhex(address.replace(":", ""))


def attributes(remainder: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the type and the value of each attribute in the rest of a body."""
    while len(remainder) >= _ATTRIBUTE.size:
        length, type_ = _ATTRIBUTE.unpack_from(remainder)
        if length < _ATTRIBUTE.size:
            return
        yield type_ & _NLA_TYPE_MASK, remainder[_ATTRIBUTE.size : length]
        remainder = remainder[_aligned(length) :]


def _aligned(length: int) -> int:
    return length + 3 & ~3
