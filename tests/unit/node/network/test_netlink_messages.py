"""Netlink messages as bytes, and the parsed replies of the kernel."""

import errno
import struct
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given, strategies as st

from corral.node.network import netlink, netlink_messages
from corral.node.network.netlink import Link, NetworkError
from corral.node.network.netlink_messages import attribute, attributes, encode_message, nested

DONE = encode_message(3, 0, bytes(4))
LOOPBACK = bytes.fromhex(
    "00000403 01000000 49000100 00000000"  # the first link, up
    "08000300 6c6f0000"  # lo
    "0a000100 000000000000 0000"  # its hardware address
    "08000400 00000100"  # 65536 bytes
)
PORT = bytes.fromhex(
    "00000100 07000000 02100000 00000000"
    "09000300 7461703000 000000"  # tap0
    "08000a00 03000000"  # a port of link 3
    "0a001400 636f7272616c 0000"  # an alias
)


def error(code: int) -> bytes:
    return encode_message(2, 0, struct.pack("=i", -code) + bytes(16))


class Kernel:
    """Replies to each request with the prepared packets."""

    def __init__(self) -> None:
        self.replies: list[list[bytes]] = []
        self.requests: list[bytes] = []

    def send(self, request: bytes) -> None:
        self.requests.append(request)
        self.packets = self.replies.pop(0) if self.replies else [error(0)]

    def recv(self, _):
        return self.packets.pop(0)

    def close(self) -> None:
        pass


@pytest.fixture
def kernel(monkeypatch):
    one = Kernel()
    monkeypatch.setattr(netlink_messages, "_open", lambda _part: one)
    monkeypatch.setattr(netlink.socket, "if_nametoindex", {"eth0": 2, "k6t-eth0": 3}.__getitem__)
    return one


def test_links_are_read_from_several_packets(kernel):
    kernel.replies = [[encode_message(16, 2, LOOPBACK), encode_message(16, 2, PORT), DONE]]
    with netlink.opened() as links:
        found = links.links()
    assert found == {
        "lo": Link(1, "lo", "00:00:00:00:00:00", 65536, is_up=True, master=0),
        "tap0": Link(7, "tap0", "", 0, is_up=False, master=3, alias="corral"),
    }
    assert struct.unpack_from("=IHH", kernel.requests[0]) == (32, 18, 0x301)


def test_add_veth_creates_the_peer_in_another_namespace(kernel):
    with netlink.opened() as links:
        links.add_veth("eth0", peer="pod1", peer_namespace=9, mac="02:00:00:00:00:01")
    _length, type_, flags = struct.unpack_from("=IHH", kernel.requests[0])
    assert (type_, flags) == (16, 0x605)  # new, only where there is none, and answered
    values = dict(attributes(kernel.requests[0][32:]))
    assert values[3] == b"eth0\0"
    assert values[1] == bytes.fromhex("020000000001")
    info = dict(attributes(values[18]))
    assert info[1] == b"veth\0"
    peer = dict(attributes(dict(attributes(info[2]))[1][16:]))
    assert peer[3] == b"pod1\0"
    assert struct.unpack("=I", peer[28]) == (9,)


def test_add_route_on_link_via_a_gateway_and_unreachable(kernel):
    with netlink.opened() as links:
        links.add_route(ip_network("10.244.0.1/32"), link="eth0")
        links.add_route(ip_network("::/0"), link="eth0", via=ip_address("fd00::1"))
        links.add_route(ip_network("10.244.0.0/16"), replace=False)
    heads = [(each[6:8].hex(), *each[16:24]) for each in kernel.requests]
    assert heads == [
        ("0505", 2, 32, 0, 0, 254, 4, 253, 1),
        ("0505", 10, 0, 0, 0, 254, 4, 0, 1),
        ("0506", 2, 16, 0, 0, 254, 4, 0, 7),
    ]
    values = dict(attributes(kernel.requests[1][28:]))
    assert values == {1: bytes(16), 4: struct.pack("=I", 2), 5: ip_address("fd00::1").packed}


def test_existing_and_missing_addresses_are_no_errors(kernel):
    kernel.replies = [[error(errno.EEXIST)], [error(errno.EADDRNOTAVAIL)]]
    address = ip_interface("10.0.2.1/24")
    with netlink.opened() as links:
        links.add_address("k6t-eth0", address)
        links.delete_address("k6t-eth0", address)
    assert [struct.unpack_from("=IH", each)[1] for each in kernel.requests] == [20, 21]


def test_an_error_carries_the_reason_of_the_kernel(kernel):
    kernel.replies = [[error(errno.EPERM)]]
    with (
        pytest.raises(NetworkError, match="the link eth0 cannot be set: Operation not permitted"),
        netlink.opened() as links,
    ):
        links.change("eth0", up=False)
    assert kernel.requests[0][24:32] == struct.pack("=II", 0, 1)


def test_an_interrupted_dump_is_an_error(kernel):
    kernel.replies = [[encode_message(16, 2, LOOPBACK), error(errno.ENOBUFS)]]
    with (
        pytest.raises(NetworkError, match="the links cannot be listed: No buffer space"),
        netlink.opened() as links,
    ):
        links.links()


def test_attributes_are_padded_and_nest():
    whole = nested(2, attribute(1, b"12345"), attribute(3, b""))
    assert whole.hex() == "14000280" + "09000100" + "3132333435000000" + "04000300"
    assert dict(attributes(dict(attributes(whole))[2])) == {1: b"12345", 3: b""}


@given(st.binary(max_size=64))
def test_any_bytes_are_parsed_to_their_end(noise):
    list(attributes(noise))
    list(netlink_messages.decode_messages(noise))
