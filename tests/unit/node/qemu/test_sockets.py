"""Sockets deep in the file system."""

import pytest

from corral.node.qemu.sockets import connect, listen


def test_a_socket_path_can_be_longer_than_its_address(tmp_path):
    deep = tmp_path.joinpath(*["a" * 40] * 4)
    deep.mkdir(parents=True)
    path = deep / "monitor.sock"
    with listen(path) as listening, connect(path) as client:
        server, _ = listening.accept()
        with server:
            client.send(b"hello")
            assert server.recv(5) == b"hello"
    assert path.stat().st_mode & 0o077 == 0


def test_a_socket_replaces_a_stale_one(tmp_path):
    path = tmp_path / "monitor.sock"
    listen(path).close()
    with listen(path), connect(path):
        pass


def test_a_socket_without_a_listener_refuses(tmp_path):
    path = tmp_path / "monitor.sock"
    listen(path).close()
    with pytest.raises(ConnectionRefusedError):
        connect(path)
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "other.sock")
