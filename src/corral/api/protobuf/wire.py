"""The protobuf wire format: a message is a row of numbered fields."""

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED_64: Final = 1
BYTES: Final = 2
FIXED_32: Final = 5

_FIXED = {FIXED_64: 8, FIXED_32: 4}
_BITS = 64

Field = tuple[int, int | bytes]
"""The number of a field, and its value: a number, or bytes that the reader must know to read."""


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in the order in which they stand.  Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            length, at = varint(message, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} is not in use")
        if length > len(message) - at:
            raise ValueError("a field is longer than its message")
        yield number, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends.  Raises ValueError."""
    value = shift = 0
    for place in range(at, min(at + 10, len(message))):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**_BITS - 1), place + 1
        shift += 7
    raise ValueError("a number does not end")


def signed(value: int) -> int:
    """A number as int32 and int64 mean it."""
    return value - 2**_BITS if value >= 2 ** (_BITS - 1) else value


# -------------------------------------------------------------------- writing


def number(at: int, value: int) -> bytes:
    """A field that holds a number, or whether something is so."""
    return _varint(at << 3 | VARINT) + _varint(value % 2**_BITS)


def double(at: int, value: float) -> bytes:
    """A field that holds a floating-point number."""
    return _varint(at << 3 | FIXED_64) + struct.pack("<d", value)


def block(at: int, content: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return b"".join((_varint(at << 3 | BYTES), _varint(len(content)), content))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
