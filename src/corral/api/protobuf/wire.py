"""The protobuf wire format."""

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED_64: Final = 1
BYTES: Final = 2
FIXED_32: Final = 5

_FIXED = {FIXED_64: 8, FIXED_32: 4}
_BITS = 64

RawField = tuple[int, int | bytes]
"""The number of a field, and its value: an integer, or bytes whose type the message defines."""
Part = tuple[int, int, int | bytes]
"""The number of a field, its wire type, and its value."""
_GROUP, _GROUP_END = 3, 4
_NUMBERS = (1 << 29) - 1


def fields(message: bytes) -> Iterator[RawField]:
    """Yield the fields of a message in order.  Raises ValueError."""
    for number, kind, value in parts(message):
        if number and kind != _GROUP:
            yield number, value


def parts(message: bytes, name: str = "message") -> Iterator[Part]:
    """Yield the fields of a message with their wire types.

    Groups, which no client sends, are yielded as empty; fields in them have the number 0, so that
    callers can count them.  Raises ValueError with Kubernetes' messages; ``name`` is that of the
    message.
    """
    at, end, groups = 0, len(message), 0
    while at < end:
        key = message[at]
        if key & 7 == BYTES and 7 < key < 0x80 and at + 1 < end and not groups:
            # The fast path of short fields, without calls, which would double the time.
            start, length = at + 2, message[at + 1]
            if length < 0x80 and start + length <= end:
                at = start + length
                yield key >> 3, BYTES, message[start:at]
                continue
        number, kind, at = _key(message, at, name)
        value: int | bytes = b""
        if kind == _GROUP_END:
            groups -= 1
            if groups < 0:
                raise ValueError(f"proto: {_short(name)}: wiretype end group for non-group")
        elif kind != _GROUP:
            value, at = _value(message, at, kind)
        yield 0 if groups or kind == _GROUP_END else number, kind, value
        groups += kind == _GROUP
    if groups:
        raise ValueError("unexpected EOF")


def _key(message: bytes, at: int, name: str) -> tuple[int, int, int]:
    """Return the number and the wire type of a field, and where its value begins."""
    key, at = varint(message, at)
    number, kind = key >> 3 & _NUMBERS, key & 7
    if number == 0:
        raise ValueError(f"proto: {_short(name)}: illegal tag 0 (wire type {kind})")
    return number, kind, at


def _value(message: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    """Return the value of a field, and where it ends."""
    if kind == VARINT:
        return varint(message, at)
    if kind == BYTES:
        length, at = varint(message, at)
    elif kind in _FIXED:
        length = _FIXED[kind]
    else:
        raise ValueError(f"proto: illegal wireType {kind}")
    if length > len(message) - at:
        raise ValueError("unexpected EOF")
    return message[at : at + length], at + length


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends.  Raises ValueError."""
    value = shift = 0
    for place in range(at, min(at + 10, len(message))):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**_BITS - 1), place + 1
        shift += 7
    raise ValueError("proto: integer overflow" if len(message) - at >= 10 else "unexpected EOF")


def signed(value: int) -> int:
    """Convert an unsigned 64-bit number to a signed one."""
    return value - 2**_BITS if value >= 2 ** (_BITS - 1) else value


# -------------------------------------------------------------------- writing


def tag(at: int, kind: int) -> bytes:
    """Encode the tag of a field."""
    return unsigned(at << 3 | kind)


def number(at: int, value: int) -> bytes:
    """Encode a field of an integer or a bool."""
    return unsigned(at << 3 | VARINT) + unsigned(value % 2**_BITS)


def double(at: int, value: float) -> bytes:
    """Encode a field of a double."""
    return unsigned(at << 3 | FIXED_64) + struct.pack("<d", value)


def block(at: int, content: bytes) -> bytes:
    """Encode a length-delimited field: a string, bytes or a message."""
    return b"".join((unsigned(at << 3 | BYTES), unsigned(len(content)), content))


def unsigned(value: int) -> bytes:
    """Encode a non-negative number as a varint."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
