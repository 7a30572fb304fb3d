"""Which of the kernel's notices matter."""

import struct

import pytest
from hypothesis import given, strategies as st

from corral.node.network.messages import messages
from corral.node.network.netlink_watch import matters

NEW_LINK, DELETED_LINK, DELETED_ADDRESS, NEW_ROUTE, DELETED_ROUTE = 16, 17, 21, 24, 25
DELETED_TABLE, DELETED_CHAIN, NEW_RULE, DELETED_RULE = 0xA02, 0xA05, 0xA06, 0xA08


def attribute(kind: int, text: bytes) -> bytes:
    length = 4 + len(text) + 1
    return struct.pack("=HH", length, kind) + text + b"\0" * (1 + -length % 4)


def link(name: bytes, index: int = 7, flags: int = 0) -> bytes:
    head = struct.pack("=BxHiII", 0, 1, index, flags, 0)
    return head + attribute(13, b"fq") + attribute(3, name)


def address(index: int) -> bytes:
    return struct.pack("=BBBBI", 2, 32, 0, 0, index)


def route(kind: int, device: int = 7) -> bytes:
    head = struct.pack("=BBBBBBBBI", 2, 16, 0, 0, 254, 4, 0, kind, 0)
    return head + struct.pack("=HHI", 8, 4, device)


def rule_of(table: bytes) -> bytes:
    return struct.pack("=BBH", 1, 0, 0) + attribute(1, table) + attribute(2, b"chain")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (DELETED_LINK, link(b"outward")),
        (DELETED_LINK, link(b"inbound")),
        (DELETED_LINK, link(b"host")),
        (NEW_LINK, link(b"lo", index=1)),  # it is down
        (DELETED_ADDRESS, address(1)),
        (DELETED_ROUTE, route(1, device=1)),  # to Services
        (DELETED_ROUTE, route(7)),  # an unreachable range
        (DELETED_TABLE, rule_of(b"corral")),
        (DELETED_TABLE, rule_of(b"corral_services")),
        (DELETED_CHAIN, rule_of(b"corral")),
        (DELETED_RULE, rule_of(b"corral")),
    ],
)
def test_what_the_network_needs_is_noticed_when_it_goes(kind, body):
    assert matters(kind, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (DELETED_LINK, link(b"pod1234")),
        (NEW_LINK, link(b"pod1234")),
        (NEW_LINK, link(b"lo", index=1, flags=1)),
        (DELETED_ADDRESS, address(7)),
        (DELETED_ROUTE, route(1)),
        (NEW_ROUTE, route(7)),
        (DELETED_RULE, rule_of(b"corral_services")),
        (NEW_RULE, rule_of(b"corral")),
        (DELETED_TABLE, rule_of(b"lan")),
    ],
)
def test_the_coming_and_going_of_machines_is_not(kind, body):
    assert not matters(kind, body)


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40))))
def test_all_messages_of_a_packet_are_read(sent):
    packet = b"".join(
        struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body + b"\0" * (-len(body) % 4)
        for kind, body in sent
    )
    assert list(messages(packet)) == sent


@given(st.binary(max_size=200))
def test_whatever_arrives_is_read_to_its_end(packet):
    for _, body in messages(packet):
        assert len(body) < len(packet)
