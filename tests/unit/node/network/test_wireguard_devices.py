"""Configuration of WireGuard devices: messages of the kernel, and the protocol of wireguard-go."""

import socket
import threading
from ipaddress import ip_address, ip_network

import pytest

from corral.node.network import wireguard_kernel, wireguard_userspace
from corral.node.network.netlink import NetworkError
from corral.node.network.netlink_messages import attribute, nested
from corral.node.network.wireguard_plan import (
    Endpoint,
    PeerChange,
    WireguardChanges,
    WireguardPeer,
    WireguardState,
)
from corral.node.network.wireguard_userspace import UserspaceDevice

KEY, OTHER_KEY, PRIVATE = bytes(range(32)), bytes(range(32, 64)), b"\x77" * 32
HOST = Endpoint(ip_address("192.0.2.1"), 51820)
HOST6 = Endpoint(ip_address("2001:db8::2"), 51820)
RANGE, RANGE6 = ip_network("10.244.1.0/24"), ip_network("fd00:10:244:1::/64")

DEVICE = "01010000 0c000200 6f7665726c617900"  # WG_CMD_SET_DEVICE, version 1; the name overlay
PEER_KEY = "24000100" + KEY.hex()
OWN = DEVICE + "24000300" + PRIVATE.hex() + "06000600 6cca0000"  # private key; port 51820
PEER = (
    DEVICE + "90000880"  # peers
    "8c000080" + PEER_KEY + "08000300 02000000"  # replaces its allowed IPs
    "14000400 0200 ca6c c0000201 0000000000000000"  # 192.0.2.1, port 51820
    "48000980"  # its allowed IPs
    "1c000080 06000100 02000000 08000200 0af40100 05000300 18000000"  # 10.244.1.0/24
    "28000080 06000100 0a000000 14000200 fd000010024400010000000000000000 05000300 40000000"
)
PEER6 = (
    DEVICE + "50000880 4c000080" + PEER_KEY + "20000400"
    "0a00 ca6c 00000000 20010db8000000000000000000000002 00000000"  # [2001:db8::2], port 51820
    "04000980"
)
GONE = DEVICE + "34000880 30000080" + PEER_KEY + "08000300 01000000"  # is removed


def encoded(changes):
    return [each.hex() for each in wireguard_kernel.encode_changes("overlay", changes)]


def spaceless(*texts):
    return [each.replace(" ", "") for each in texts]


def test_the_kernel_gets_the_messages_of_its_header():
    peers = (
        PeerChange(KEY, endpoint=HOST, replaces=True, allowed=(RANGE, RANGE6)),
        PeerChange(KEY, endpoint=HOST6),
        PeerChange(KEY, removes=True),
    )
    changes = WireguardChanges(private_key=PRIVATE, port=51820, peers=peers)
    assert encoded(changes) == spaceless(OWN, PEER, PEER6, GONE)


def test_many_allowed_ips_are_sent_in_several_messages():
    many = [ip_network((0x0A000000 + each, 32)) for each in range(2500)]
    change = PeerChange(KEY, endpoint=HOST, replaces=True, allowed=many)
    sent = list(wireguard_kernel.encode_changes("overlay", WireguardChanges(peers=(change,))))
    assert all(len(each) < 1 << 16 for each in sent)
    assert wireguard_kernel.decode_state(sent).peers == {KEY: WireguardPeer(HOST, frozenset(many))}
    replacing = [bytes.fromhex("0800030002000000") in each for each in sent]
    assert replacing == [True, False, False]


def test_a_dump_of_the_kernel_is_read_whole_although_a_peer_continues():
    first, second = (bytes.fromhex(each.replace(" ", "")) for each in (OWN, PEER))
    more = bytes.fromhex(DEVICE.replace(" ", "")) + nested(
        8, nested(0, attribute(1, KEY), attribute(6, bytes(16)))
    )
    found = wireguard_kernel.decode_state([first, second, more])
    assert found == WireguardState(
        PRIVATE, 51820, {KEY: WireguardPeer(HOST, frozenset({RANGE, RANGE6}))}
    )


def test_a_peer_without_an_endpoint_is_read():
    empty = attribute(4, bytes(28))  # what the kernel has before the first packet
    body = bytes(4) + nested(8, nested(0, attribute(1, KEY), empty))
    assert wireguard_kernel.decode_state([body]).peers == {KEY: WireguardPeer(None, frozenset())}


def test_wireguard_go_gets_the_lines_of_its_protocol():
    peers = (
        PeerChange(KEY, endpoint=HOST, replaces=True, allowed=(RANGE, RANGE6)),
        PeerChange(KEY, endpoint=HOST6),
        PeerChange(OTHER_KEY, removes=True),
    )
    changes = WireguardChanges(private_key=PRIVATE, port=51820, peers=peers)
    assert wireguard_userspace.encode_changes(changes) == (
        f"set=1\nprivate_key={PRIVATE.hex()}\nlisten_port=51820\n"
        f"public_key={KEY.hex()}\nendpoint=192.0.2.1:51820\nreplace_allowed_ips=true\n"
        "allowed_ip=10.244.1.0/24\nallowed_ip=fd00:10:244:1::/64\n"
        f"public_key={KEY.hex()}\nendpoint=[2001:db8::2]:51820\n"
        f"public_key={OTHER_KEY.hex()}\nremove=true\n\n"
    )


ANSWER = (
    f"private_key={PRIVATE.hex()}\nlisten_port=51820\n"
    f"public_key={KEY.hex()}\npreshared_key={'00' * 32}\nprotocol_version=1\n"
    "endpoint=[2001:db8::2]:51820\nlast_handshake_time_sec=0\nallowed_ip=10.244.1.0/24\n"
    "allowed_ip=fd00:10:244:1::/64\n"
    f"public_key={OTHER_KEY.hex()}\nprotocol_version=1\nerrno=0\n\n"
)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A function that has a process answer one request, and returns its device."""
    path = tmp_path / "device.sock"
    monkeypatch.setattr(wireguard_userspace, "_socket_path", lambda _name: path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        threads = []

        def answer(text):
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(text.encode())

        def serve(text):
            threads.append(threading.Thread(target=answer, args=(text,)))
            threads[-1].start()
            return UserspaceDevice("self", "device")

        yield serve
        for each in threads:
            each.join()


def test_the_state_of_wireguard_go_is_read(served):
    assert served(ANSWER).read() == WireguardState(
        PRIVATE,
        51820,
        {
            KEY: WireguardPeer(HOST6, frozenset({RANGE, RANGE6})),
            OTHER_KEY: WireguardPeer(None, frozenset()),
        },
    )


def test_a_change_that_wireguard_go_refuses_is_an_error(served):
    with pytest.raises(NetworkError, match="cannot be configured: Address already in use"):
        served("errno=-98\n\n").write(WireguardChanges(port=51820))


def test_a_wireguard_go_that_ends_meanwhile_is_an_error(served):
    with pytest.raises(NetworkError, match="wireguard-go has ended"):
        served("private_key=").read()
