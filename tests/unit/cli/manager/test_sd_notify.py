"""Readiness for systemd, by sd_notify(3)."""

import os
import socket

import pytest

from corral.cli.manager.sd_notify import notifying


@pytest.mark.parametrize("abstract", [False, True])
def test_the_socket_gets_ready_and_stopping(monkeypatch, tmp_path, abstract):
    path = f"@corral-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path.replace("@", "\0"))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        with notifying() as notifier:
            assert "NOTIFY_SOCKET" not in os.environ
            notifier.ready("The API is https://127.0.0.1:1")
            assert listening.recv(999) == b"READY=1\nSTATUS=The API is https://127.0.0.1:1"
        assert listening.recv(999) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/no/such/socket"])
def test_an_unused_socket_is_ignored(monkeypatch, address):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with notifying() as notifier:
        notifier.ready("up")
