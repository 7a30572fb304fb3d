import pytest
from hypothesis import given, strategies as st

from corral.api.protobuf.wire import fields, parts, signed, varint


def encoded(value):
    value &= 2**64 - 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_round_trip(value):
    read, end = varint(encoded(value), 0)
    assert signed(read) == value
    assert end == len(encoded(value))


def test_fields_of_every_wire_type():
    message = b"\x08\x05\x12\x02ab\x1d1234\x2112345678\x0a\x00"
    assert list(fields(message)) == [(1, 5), (2, b"ab"), (3, b"1234"), (4, b"12345678"), (1, b"")]


def test_groups_are_skipped_and_counted():
    message = b"\x0b\x08\x05\x13\x0a\x01x\x14\x0c\x12\x01y"
    assert list(fields(message)) == [(2, b"y")]
    assert [number for number, _, _ in parts(message)] == [1, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (b"\x08", "unexpected EOF"),
        (b"\x08" + b"\xff" * 11, "integer overflow"),
        (b"\x12\x05ab", "unexpected EOF"),
        (b"\x12", "unexpected EOF"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "unexpected EOF"),
        (b"\x1d12", "unexpected EOF"),
        (b"\x0b", "unexpected EOF"),
        (b"\x0c", "end group for non-group"),
        (b"\x0e", "illegal wireType 6"),
        (b"\x00\x00", "illegal tag 0"),
        (b"\x02\x00", "illegal tag 0"),
    ],
)
def test_malformed_messages_are_rejected(message, fault):
    with pytest.raises(ValueError, match=fault):
        list(fields(message))


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_a_value_error(message):
    try:
        found = list(fields(message))
    except ValueError:
        return
    assert all(number > 0 for number, _ in found)
