"""Netlink's messages as bytes, and what is made of the kernel's answers."""

import errno
import struct
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given, strategies as st

from corral.node.network import messages, netlink
from corral.node.network.messages import attribute, attributes, message, nested
from corral.node.network.netlink import Link, NetworkError

DONE = message(3, 0, bytes(4))
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


def verdict(code: int) -> bytes:
    return message(2, 0, struct.pack("=i", -code) + bytes(16))


class Kernel:
    """Answers each question with the packets put down for it."""

    def __init__(self) -> None:
        self.answers: list[list[bytes]] = []
        self.asked: list[bytes] = []

    def send(self, question: bytes) -> None:
        self.asked.append(question)
        self.said = self.answers.pop(0) if self.answers else [verdict(0)]

    def recv(self, _):
        return self.said.pop(0)

    def close(self) -> None:
        pass


@pytest.fixture
def kernel(monkeypatch):
    one = Kernel()
    monkeypatch.setattr(messages, "_kernel", lambda _part: one)
    monkeypatch.setattr(netlink.socket, "if_nametoindex", {"eth0": 2, "k6t-eth0": 3}.__getitem__)
    return one


def test_links_are_read_from_several_packets(kernel):
    kernel.answers = [[message(16, 2, LOOPBACK), message(16, 2, PORT), DONE]]
    with netlink.opened() as links:
        found = links.links()
    assert found == {
        "lo": Link(1, "lo", "00:00:00:00:00:00", 65536, is_up=True, master=0),
        "tap0": Link(7, "tap0", "", 0, is_up=False, master=3, alias="corral"),
    }
    assert struct.unpack_from("=IHH", kernel.asked[0]) == (32, 18, 0x301)


def test_a_veth_is_asked_for_with_its_peer_in_another_namespace(kernel):
    with netlink.opened() as links:
        links.add_veth("eth0", peer="pod1", peer_namespace=9, mac="02:00:00:00:00:01")
    _length, kind, flags = struct.unpack_from("=IHH", kernel.asked[0])
    assert (kind, flags) == (16, 0x605)  # new, only where there is none, and answered
    told = dict(attributes(kernel.asked[0][32:]))
    assert told[3] == b"eth0\0"
    assert told[1] == bytes.fromhex("020000000001")
    info = dict(attributes(told[18]))
    assert info[1] == b"veth\0"
    peer = dict(attributes(dict(attributes(info[2]))[1][16:]))
    assert peer[3] == b"pod1\0"
    assert struct.unpack("=I", peer[28]) == (9,)


def test_a_route_goes_on_the_link_through_a_router_or_nowhere(kernel):
    with netlink.opened() as links:
        links.add_route(ip_network("10.244.0.1/32"), link="eth0")
        links.add_route(ip_network("::/0"), link="eth0", via=ip_address("fd00::1"))
        links.add_route(ip_network("10.244.0.0/16"), replace=False)
    heads = [(each[6:8].hex(), *each[16:24]) for each in kernel.asked]
    assert heads == [
        ("0505", 2, 32, 0, 0, 254, 4, 253, 1),
        ("0505", 10, 0, 0, 0, 254, 4, 0, 1),
        ("0506", 2, 16, 0, 0, 254, 4, 0, 7),
    ]
    told = dict(attributes(kernel.asked[1][28:]))
    assert told == {1: bytes(16), 4: struct.pack("=I", 2), 5: ip_address("fd00::1").packed}


def test_what_is_there_or_gone_already_is_as_good(kernel):
    kernel.answers = [[verdict(errno.EEXIST)], [verdict(errno.EADDRNOTAVAIL)]]
    address = ip_interface("10.0.2.1/24")
    with netlink.opened() as links:
        links.add_address("k6t-eth0", address)
        links.delete_address("k6t-eth0", address)
    assert [struct.unpack_from("=IH", each)[1] for each in kernel.asked] == [20, 21]


def test_what_the_kernel_refuses_is_told_in_its_words(kernel):
    kernel.answers = [[verdict(errno.EPERM)]]
    with (
        pytest.raises(NetworkError, match="the link eth0 cannot be set: Operation not permitted"),
        netlink.opened() as links,
    ):
        links.change("eth0", up=False)
    assert kernel.asked[0][24:32] == struct.pack("=II", 0, 1)


def test_a_dump_that_breaks_off_is_told(kernel):
    kernel.answers = [[message(16, 2, LOOPBACK), verdict(errno.ENOBUFS)]]
    with (
        pytest.raises(NetworkError, match="the links cannot be listed: No buffer space"),
        netlink.opened() as links,
    ):
        links.links()


def test_fields_are_filled_up_and_nest():
    whole = nested(2, attribute(1, b"12345"), attribute(3, b""))
    assert whole.hex() == "14000280" + "09000100" + "3132333435000000" + "04000300"
    assert dict(attributes(dict(attributes(whole))[2])) == {1: b"12345", 3: b""}


@given(st.binary(max_size=64))
def test_anything_is_read_to_its_end(noise):
    list(attributes(noise))
    list(messages.messages(noise))
