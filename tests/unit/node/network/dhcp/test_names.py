"""Domain names on the wire, read back by a library that knows them."""

import pytest
from dnslib import DNSBuffer
from hypothesis import given, strategies as st

from corral.node.network.dhcp import names

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)


def read(data: bytes) -> list[str]:
    buffer, found = DNSBuffer(data), []
    while buffer.remaining():
        found.append(str(buffer.decode_name()).rstrip("."))
    return found


@given(st.lists(NAMES, max_size=8).map(tuple))
def test_both_encodings_of_domain_lists_round_trip(given_):
    assert read(names.encode_list(given_)) == list(given_)
    assert read(names.encode_compressed(given_)) == list(given_)
    assert len(names.encode_compressed(given_)) <= len(names.encode_list(given_))


def test_repeated_names_are_compressed_by_pointers():
    assert names.encode_compressed(("a.b", "a.b")) == b"\1a\1b\0\xc0\0"


def test_a_trailing_dot_changes_nothing():
    assert names.encode("a.b.") == names.encode("a.b") == b"\1a\1b\0"


@pytest.mark.parametrize(
    "name", ["", ".", "a..b", "-a", "a-.b", "a b", "é", "a" * 64, ".".join(["a" * 60] * 5), "a\0"]
)
def test_invalid_domain_names_are_left_out(name):
    assert names.encode(name) == b""
    assert names.encode_compressed((name, "a")) == names.encode_list((name, "a")) == b"\1a\0"
