"""Netlink: how questions to the kernel are written, asked and answered (netlink(7)).

Written by hand, since a pod's network takes a dozen of them, and what does more than to write and
read a few bytes takes longer for each than the kernel takes for all.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Final, Self

ROUTE: Final = 0
"""The part of the kernel that knows links, addresses and routes (rtnetlink(7))."""
NETFILTER: Final = 12
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400

_REQUEST, _ACKNOWLEDGE, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF
_LARGEST: Final = 1 << 16
_PATIENCE_SECONDS: Final = 10.0
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")


class Conversation:
    """With one part of the kernel, about the namespace of the calling thread."""

    def __init__(self, part: int) -> None:
        """Raises OSError."""
        self._kernel = _kernel(part)

    def ask(self, kind: int, body: bytes) -> Iterator[bytes]:
        """All that there is of a kind: the bodies of the answers.  Raises OSError."""
        self._kernel.send(message(kind, _REQUEST | _DUMP, body))
        return self._answers()

    def order(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Have something done, and wait until it is.  Raises OSError."""
        self._kernel.send(message(kind, _REQUEST | _ACKNOWLEDGE | flags, body))
        for _ in self._answers():
            pass

    def close(self) -> None:
        self._kernel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self) -> Iterator[bytes]:
        while True:
            for kind, body in messages(self._kernel.recv(_LARGEST)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                yield body


def _kernel(part: int) -> socket.socket:
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, part)
    kernel.settimeout(_PATIENCE_SECONDS)
    return kernel


def message(kind: int, flags: int, body: bytes) -> bytes:
    """A message: its kind, what is wanted of it, and what it says."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def messages(packet: bytes) -> Iterator[tuple[int, bytes]]:
    """The messages in a packet: the kind and the body of each."""
    while len(packet) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(packet)
        if length < _HEADER.size:
            return
        yield kind, packet[_HEADER.size : length]
        packet = packet[_aligned(length) :]


def attribute(kind: int, value: bytes) -> bytes:
    """A field of a body, with what fills it up to a multiple of four bytes."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def nested(kind: int, *values: bytes) -> bytes:
    """A field that consists of fields."""
    return attribute(kind | _NESTED, b"".join(values))


def number(value: int) -> bytes:
    """A number as most fields have it: 32 bits in the machine's own order."""
    return struct.pack("=I", value)


def text(value: str) -> bytes:
    """A text as fields have it."""
    return value.encode() + b"\0"


def hardware(address: str) -> bytes:
    """A hardware address such as ``02:00:00:00:00:01`` as fields have it."""
    return bytes.fromhex(address.replace(":", ""))


def attributes(remainder: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields in the remainder of a body: the kind and the value of each."""
    while len(remainder) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(remainder)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _TYPE_MASK, remainder[_ATTRIBUTE.size : length]
        remainder = remainder[_aligned(length) :]


def _aligned(length: int) -> int:
    return length + 3 & ~3
