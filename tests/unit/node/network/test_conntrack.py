"""The kernel's messages about connections, as bytes."""

import errno
import struct
from ipaddress import ip_address

import pytest

from corral.node.network import messages
from corral.node.network.conntrack import forget_flows
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
OTHER = bytes.fromhex("0800070000000001")  # something that nobody asked for


def of_tcp(state: int) -> bytes:
    """The same between the same two by TCP, in a state of nf_conntrack_tcp.h."""
    tuples = (ORIGINAL + REPLY).replace(bytes.fromhex("0500010011"), bytes.fromhex("0500010006"))
    details = bytes.fromhex("100004800c00018005000100") + bytes([state, 0, 0, 0])
    return message(1 << 8, bytes([2, 0, 0, 0]) + tuples + details + NUMBER)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def flow() -> bytes:
    return message(1 << 8, bytes([2, 0, 0, 0]) + ORIGINAL + REPLY + OTHER + NUMBER)


DONE = message(3, bytes(4))


def verdict(code: int) -> bytes:
    return message(2, struct.pack("=i", -code) + bytes(16))


class Kernel:
    """Answers each question with what was put down for it."""

    def __init__(self, *answers: list[bytes]) -> None:
        self.answers = list(answers)
        self.asked = []
        self.said = []

    def close(self) -> None:
        pass

    def send(self, question: bytes) -> None:
        self.asked.append(question)
        self.said = self.answers.pop(0)

    def recv(self, _):
        return self.said.pop(0)


@pytest.fixture
def kernel(monkeypatch):
    one = Kernel()
    monkeypatch.setattr(messages, "_kernel", lambda _part: one)
    return one


def test_what_is_stale_is_deleted_by_its_tuple_and_number(kernel):
    kernel.answers = [[flow() + flow(), DONE], [verdict(0)], [verdict(0)]]
    seen = []

    def is_stale(found):
        seen.append(found)
        return True

    assert forget_flows(is_stale, version=4, protocol="udp", port=53) == 2
    assert (seen[0].destination, seen[0].destination_port) == (ip_address("10.96.0.11"), 53)
    assert (seen[0].answerer, seen[0].answerer_port) == (ip_address("10.244.0.2"), 5353)
    assert kernel.asked[1].endswith(ORIGINAL + NUMBER)
    assert struct.unpack_from("=H", kernel.asked[1], 4)[0] == (1 << 8) | 2


def test_the_kernel_is_asked_for_the_port_only(kernel):
    kernel.answers = [[DONE]]
    assert forget_flows(lambda _: True, version=4, protocol="udp", port=53) == 0
    (question,) = kernel.asked
    assert struct.unpack_from("=H", question, 6)[0] == 0x301
    assert bytes.fromhex("0500010011000000") + bytes.fromhex("0600030000350000") in question


def test_what_is_not_stale_stays(kernel):
    kernel.answers = [[flow(), DONE]]
    assert forget_flows(lambda _: False, version=4, protocol="udp") == 0
    assert len(kernel.asked) == 1


def test_what_has_gone_by_itself_is_as_good(kernel):
    kernel.answers = [[flow(), DONE], [verdict(errno.ENOENT)]]
    assert forget_flows(lambda _: True, version=4, protocol="udp") == 1


def test_what_the_kernel_refuses_is_told(kernel):
    kernel.answers = [[verdict(errno.EPERM)]]
    with pytest.raises(NetworkError, match="Operation not permitted"):
        forget_flows(lambda _: True, version=4, protocol="udp")


def test_of_tcp_only_what_is_no_connection_is_forgotten(kernel):
    unanswered, opening, open_, waiting, broken = 1, 2, 3, 7, 8
    every = [unanswered, opening, open_, waiting, broken]
    kernel.answers = [[*map(of_tcp, every), DONE], [verdict(0)], [verdict(0)]]
    assert forget_flows(lambda _: True, version=4, protocol="tcp", port=53) == 2
    not_assured = bytes.fromhex("080003000000000008001a0000000004")
    assert not_assured in kernel.asked[0]
