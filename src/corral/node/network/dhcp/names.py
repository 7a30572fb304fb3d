"""Wire format of domain names (RFC 1035, 4.1.4) and of search lists."""

from __future__ import annotations

import re

_LABEL = re.compile(rb"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_MAX_BYTES = 255
_POINTER = 0xC000
_POINTER_LIMIT = 0x4000


def encode(name: str) -> bytes:
    """Return the labels and the terminating zero; empty if it is not a domain name."""
    labels = name.strip(".").encode("ascii", "replace").split(b".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return b""
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return wire if len(wire) <= _MAX_BYTES else b""


def encode_list(names: tuple[str, ...]) -> bytes:
    """Return the names one after the other, as DHCPv6 and router advertisements carry them."""
    return b"".join(map(encode, names))


def encode_compressed(names: tuple[str, ...]) -> bytes:
    """Return the names as DHCP carries them (RFC 3397): repeated suffixes are pointers."""
    out = bytearray()
    offsets: dict[bytes, int] = {}
    for name in names:
        remaining = encode(name)
        while len(remaining) > 1 and remaining not in offsets:
            if len(out) < _POINTER_LIMIT:
                offsets[remaining] = len(out)
            size = 1 + remaining[0]
            out += remaining[:size]
            remaining = remaining[size:]
        if len(remaining) > 1:
            out += (_POINTER | offsets[remaining]).to_bytes(2, "big")
        else:
            out += remaining
    return bytes(out)
