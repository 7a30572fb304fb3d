"""Domain names as packets carry them (RFC 1035, 4.1.4), and search lists of them."""

from __future__ import annotations

import re

_LABEL = re.compile(rb"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST = 255
_POINTER = 0xC000
_POINTER_LIMIT = 0x4000


def encoded(name: str) -> bytes:
    """`name` as labels and a final zero; empty if it is no domain name."""
    labels = name.strip(".").encode("ascii", "replace").split(b".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return b""
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return wire if len(wire) <= _LONGEST else b""


def listed(names: tuple[str, ...]) -> bytes:
    """The names one after the other, as DHCPv6 and router advertisements carry them."""
    return b"".join(map(encoded, names))


def compressed(names: tuple[str, ...]) -> bytes:
    """The same for DHCP (RFC 3397): an end that was written before is pointed to."""
    out = bytearray()
    places: dict[bytes, int] = {}
    for name in names:
        rest = encoded(name)
        while len(rest) > 1 and rest not in places:
            if len(out) < _POINTER_LIMIT:
                places[rest] = len(out)
            size = 1 + rest[0]
            out += rest[:size]
            rest = rest[size:]
        if len(rest) > 1:
            out += (_POINTER | places[rest]).to_bytes(2, "big")
        else:
            out += rest
    return bytes(out)
