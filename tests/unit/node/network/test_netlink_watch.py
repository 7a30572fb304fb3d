"""Which notifications of the kernel are relevant."""

import struct

import pytest
from hypothesis import given, strategies as st

from corral.node.network.netlink_messages import decode_messages
from corral.node.network.netlink_watch import is_relevant

RTM_NEWLINK, RTM_DELLINK, RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE = 16, 17, 21, 24, 25
DELETED_TABLE, DELETED_CHAIN, NEW_RULE, DELETED_RULE = 0xA02, 0xA05, 0xA06, 0xA08


def attribute(type_: int, text: bytes) -> bytes:
    length = 4 + len(text) + 1
    return struct.pack("=HH", length, type_) + text + b"\0" * (1 + -length % 4)


def link(name: bytes, index: int = 7, flags: int = 0) -> bytes:
    head = struct.pack("=BxHiII", 0, 1, index, flags, 0)
    return head + attribute(13, b"fq") + attribute(3, name)


def address(index: int) -> bytes:
    return struct.pack("=BBBBI", 2, 32, 0, 0, index)


def route(type_: int, device: int = 7) -> bytes:
    head = struct.pack("=BBBBBBBBI", 2, 16, 0, 0, 254, 4, 0, type_, 0)
    return head + struct.pack("=HHI", 8, 4, device)


def rule_of(table: bytes) -> bytes:
    return struct.pack("=BBH", 1, 0, 0) + attribute(1, table) + attribute(2, b"chain")


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (RTM_DELLINK, link(b"outward")),
        (RTM_DELLINK, link(b"inbound")),
        (RTM_DELLINK, link(b"host")),
        (RTM_NEWLINK, link(b"lo", index=1)),  # it is down
        (RTM_DELADDR, address(1)),
        (RTM_DELROUTE, route(1, device=1)),  # to Services
        (RTM_DELROUTE, route(7)),  # an unreachable range
        (DELETED_TABLE, rule_of(b"corral")),
        (DELETED_TABLE, rule_of(b"corral_services")),
        (DELETED_CHAIN, rule_of(b"corral")),
        (DELETED_RULE, rule_of(b"corral")),
    ],
)
def test_losses_of_the_machine_network_are_relevant(type_, body):
    assert is_relevant(type_, body)


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (RTM_DELLINK, link(b"pod1234")),
        (RTM_NEWLINK, link(b"pod1234")),
        (RTM_NEWLINK, link(b"lo", index=1, flags=1)),
        (RTM_DELADDR, address(7)),
        (RTM_DELROUTE, route(1)),
        (RTM_NEWROUTE, route(7)),
        (DELETED_RULE, rule_of(b"corral_services")),
        (NEW_RULE, rule_of(b"corral")),
        (DELETED_TABLE, rule_of(b"lan")),
    ],
)
def test_links_and_routes_of_pods_are_not_relevant(type_, body):
    assert not is_relevant(type_, body)


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40))))
def test_all_messages_of_a_packet_are_parsed(sent):
    packet = b"".join(
        struct.pack("=IHHII", 16 + len(body), type_, 0, 0, 0) + body + b"\0" * (-len(body) % 4)
        for type_, body in sent
    )
    assert list(decode_messages(packet)) == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_to_their_end(packet):
    for _, body in decode_messages(packet):
        assert len(body) < len(packet)
