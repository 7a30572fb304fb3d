"""Messages of connection tracking, as bytes."""

import errno
import struct
from ipaddress import ip_address

import pytest

from corral.node.network import netlink_messages
from corral.node.network.conntrack import delete_flows
from corral.node.network.netlink import NetworkError

ORIGINAL = bytes.fromhex(
    "34000180"  # the tuple of the client's packets
    "14000180080001000af40003080002000a60000b"  # 10.244.0.3 to 10.96.0.11
    "1c000280050001001100000006000200a44a00000600030000350000"  # UDP 42058 to 53
)  # fmt: skip
REPLY = bytes.fromhex(
    "34000280"
    "14000180080001000af40002080002000af40003"  # 10.244.0.2 to 10.244.0.3
    "1c00028005000100110000000600020014e9000006000300a44a0000"  # UDP 5353 to 42058
)  # fmt: skip
NUMBER = bytes.fromhex("08000c0012b5b4fc")
OTHER = bytes.fromhex("0800070000000001")  # an attribute that is not used


def of_tcp(state: int) -> bytes:
    """The same between the same two by TCP, in a state of nf_conntrack_tcp.h."""
    tuples = (ORIGINAL + REPLY).replace(bytes.fromhex("0500010011"), bytes.fromhex("0500010006"))
    details = bytes.fromhex("100004800c00018005000100") + bytes([state, 0, 0, 0])
    return message(1 << 8, bytes([2, 0, 0, 0]) + tuples + details + NUMBER)


def message(type_: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), type_, 2, 1, 0) + body


def flow() -> bytes:
    return message(1 << 8, bytes([2, 0, 0, 0]) + ORIGINAL + REPLY + OTHER + NUMBER)


DONE = message(3, bytes(4))


def error(code: int) -> bytes:
    return message(2, struct.pack("=i", -code) + bytes(16))


class Kernel:
    """Replies to each request with the prepared packets."""

    def __init__(self, *replies: list[bytes]) -> None:
        self.replies = list(replies)
        self.requests = []
        self.packets = []

    def close(self) -> None:
        pass

    def send(self, request: bytes) -> None:
        self.requests.append(request)
        self.packets = self.replies.pop(0)

    def recv(self, _):
        return self.packets.pop(0)


@pytest.fixture
def kernel(monkeypatch):
    one = Kernel()
    monkeypatch.setattr(netlink_messages, "_open", lambda _part: one)
    return one


def test_stale_flows_are_deleted_by_tuple_and_id(kernel):
    kernel.replies = [[flow() + flow(), DONE], [error(0)], [error(0)]]
    seen = []

    def is_stale(found):
        seen.append(found)
        return True

    assert delete_flows(is_stale, version=4, protocol="udp", port=53) == 2
    assert (seen[0].destination, seen[0].destination_port) == (ip_address("10.96.0.11"), 53)
    assert (seen[0].replier, seen[0].replier_port) == (ip_address("10.244.0.2"), 5353)
    assert kernel.requests[1].endswith(ORIGINAL + NUMBER)
    assert struct.unpack_from("=H", kernel.requests[1], 4)[0] == (1 << 8) | 2


def test_only_flows_of_the_port_are_dumped(kernel):
    kernel.replies = [[DONE]]
    assert delete_flows(lambda _: True, version=4, protocol="udp", port=53) == 0
    (request,) = kernel.requests
    assert struct.unpack_from("=H", request, 6)[0] == 0x301
    assert bytes.fromhex("0500010011000000") + bytes.fromhex("0600030000350000") in request


def test_other_flows_stay(kernel):
    kernel.replies = [[flow(), DONE]]
    assert delete_flows(lambda _: False, version=4, protocol="udp") == 0
    assert len(kernel.requests) == 1


def test_flows_that_are_gone_are_no_error(kernel):
    kernel.replies = [[flow(), DONE], [error(errno.ENOENT)]]
    assert delete_flows(lambda _: True, version=4, protocol="udp") == 1


def test_errors_of_the_kernel_are_raised(kernel):
    kernel.replies = [[error(errno.EPERM)]]
    with pytest.raises(NetworkError, match="Operation not permitted"):
        delete_flows(lambda _: True, version=4, protocol="udp")


def test_of_tcp_only_closed_connections_are_deleted(kernel):
    unanswered, opening, open_, waiting, broken = 1, 2, 3, 7, 8
    every = [unanswered, opening, open_, waiting, broken]
    kernel.replies = [[*map(of_tcp, every), DONE], [error(0)], [error(0)]]
    assert delete_flows(lambda _: True, version=4, protocol="tcp", port=53) == 2
    not_assured = bytes.fromhex("080003000000000008001a0000000004")
    assert not_assured in kernel.requests[0]
