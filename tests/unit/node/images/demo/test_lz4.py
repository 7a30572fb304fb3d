"""LZ4's legacy format: blocks of a size and their data, whose first are literals."""

import struct

import pytest

from corral.node.images.demo import lz4

MAGIC = b"\x02\x21\x4c\x18"


def block(literals):
    """A block that holds these bytes (fewer than 15) as they are."""
    data = bytes([len(literals) << 4]) + literals
    return struct.pack("<I", len(data)) + data


def test_blocks_are_unpacked_one_after_the_other():
    assert lz4.is_legacy(MAGIC)
    assert lz4.unpack(MAGIC + block(b"first, ") + block(b"second")) == b"first, second"


def test_a_match_overlaps_its_own_output():
    # one literal, then 4 bytes from 1 byte before; and the last literals that a block ends with
    data = b"\x10a\x01\x00" + b"\x50bcdef"
    assert lz4.unpack(MAGIC + struct.pack("<I", len(data)) + data) == b"aaaaabcdef"


def test_packed_data_is_smaller_and_unpacks_to_the_same():
    data = bytes(range(256)) * 40_000
    packed = lz4.pack(data)
    assert len(packed) < len(data) // 100
    assert lz4.unpack(packed) == data


@pytest.mark.parametrize("damaged", [block(b"short")[:-1], struct.pack("<I", 2) + b"\xf0\xff"])
def test_damaged_data_is_refused(damaged):
    with pytest.raises(ValueError, match="damaged"):
        lz4.unpack(MAGIC + damaged)


def test_a_missing_library_is_an_error_that_names_its_package(monkeypatch):
    monkeypatch.setattr(lz4, "_LIBRARY", "libnowhere.so.1")
    with pytest.raises(ValueError, match="install liblz4-1"):
        lz4.unpack(MAGIC + block(b"x"))
