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

RawField = tuple[int, int | bytes]
"""The number of a field, and its value: a number, or bytes that the reader must know to read."""
Part = tuple[int, int, int | bytes]
"""The number of a field, its wire type, and its value."""
_GROUP, _GROUP_END = 3, 4
_NUMBERS = (1 << 29) - 1


def fields(message: bytes) -> Iterator[RawField]:
    """The fields of a message, in the order in which they stand.  Raises ValueError."""
    for number, kind, value in parts(message):
        if number and kind != _GROUP:
            yield number, value


def parts(message: bytes, name: str = "message") -> Iterator[Part]:
    """The fields of a message with their wire types.

    Groups, which nobody sends, are told as empty; what is in them has the number 0, so that it can
    be counted.  Raises ValueError, in the words of Kubernetes' own readers; ``name`` is what it is.
    """
    at, end, groups = 0, len(message), 0
    while at < end:
        key = message[at]
        if key & 7 == BYTES and 7 < key < 0x80 and at + 1 < end and not groups:
            # Most fields begin so, and a call for each takes as long as all else.
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
    """The number and the wire type of a field, and where its value begins."""
    key, at = varint(message, at)
    number, kind = key >> 3 & _NUMBERS, key & 7
    if number == 0:
        raise ValueError(f"proto: {_short(name)}: illegal tag 0 (wire type {kind})")
    return number, kind, at


def _value(message: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    """The value of a field, and where it ends."""
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
    """The number that begins at a place, and where it ends.  Raises ValueError."""
    value = shift = 0
    for place in range(at, min(at + 10, len(message))):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**_BITS - 1), place + 1
        shift += 7
    raise ValueError("proto: integer overflow" if len(message) - at >= 10 else "unexpected EOF")


def signed(value: int) -> int:
    """A number as int32 and int64 mean it."""
    return value - 2**_BITS if value >= 2 ** (_BITS - 1) else value


# -------------------------------------------------------------------- writing


def tag(at: int, kind: int) -> bytes:
    """What begins a field of a wire type."""
    return unsigned(at << 3 | kind)


def number(at: int, value: int) -> bytes:
    """A field that holds a number, or whether something is so."""
    return unsigned(at << 3 | VARINT) + unsigned(value % 2**_BITS)


def double(at: int, value: float) -> bytes:
    """A field that holds a floating-point number."""
    return unsigned(at << 3 | FIXED_64) + struct.pack("<d", value)


def block(at: int, content: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return b"".join((unsigned(at << 3 | BYTES), unsigned(len(content)), content))


def unsigned(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
