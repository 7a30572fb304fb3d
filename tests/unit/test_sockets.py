"""The state of the other side of a socket."""

import socket
import struct
from types import SimpleNamespace

import pytest

from corral import sockets


@pytest.fixture
def connected():
    """Both ends of a TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_unacknowledged_bytes_are_counted(connected, family):
    one, other = connected if family == "tcp" else socket.socketpair()
    with one, other:
        assert sockets.unacknowledged(one) == 0
        one.setblocking(False)
        while sent := _sent(one):
            pass
        assert sent == 0
        full = sockets.unacknowledged(one)
        assert full > 0
        other.settimeout(60)
        while sockets.unacknowledged(one) >= full:
            assert other.recv(1 << 20)


def _sent(one):
    try:
        return one.send(bytes(1 << 20))
    except BlockingIOError:
        return 0


def test_what_was_acknowledged_only_grows(connected):
    one, other = connected
    before = sockets.acknowledged(one)
    one.sendall(bytes(100_000))
    other.settimeout(60)
    left = 100_000
    while left:
        left -= len(other.recv(left))
    other.sendall(b"x")
    assert one.recv(1) == b"x", "what is sent back acknowledges what came"
    assert sockets.acknowledged(one) == before + 100_000


def test_without_tcp_info_nothing_is_acknowledged():
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        assert sockets.acknowledged(one) == 0
    short = SimpleNamespace(getsockopt=lambda level, option, size: struct.pack("=Q", 1))
    assert sockets.acknowledged(short) == 0, "an older kernel reports less"


def test_a_silent_peer_is_probed(connected):
    one, _ = connected
    sockets.keep_alive(one, 3600)
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, between, times = (
        one.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert idle <= 60
    assert between * times == 3600
    sockets.set_user_timeout(one, 60)
    assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_a_unix_socket_needs_no_keepalive():
    one, other = socket.socketpair()
    with one, other:
        sockets.keep_alive(one, 60)
        sockets.set_user_timeout(one, 60)
        assert not one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
