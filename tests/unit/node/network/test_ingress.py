"""The host's ports, without any program."""

import os
import socket
from ipaddress import ip_address

import pytest

from corral.node.network import ingress
from corral.node.network.ingress import HostPort, unavailable_reason

LOOPBACK = ip_address("127.0.0.1")


def test_ports_are_named_as_address_and_port():
    assert str(HostPort("tcp", LOOPBACK, 30080)) == "tcp 127.0.0.1:30080"
    assert str(HostPort("udp", ip_address("::1"), 53)) == "udp [::1]:53"


@pytest.mark.parametrize(
    ("protocol", "kind"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)]
)
def test_a_port_in_use_is_reported(protocol, kind):
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if protocol == "tcp":
            other.listen()
        port = HostPort(protocol, LOOPBACK, other.getsockname()[1])
        assert unavailable_reason(port) == "another program has it"
    assert unavailable_reason(port) == ""


def test_a_foreign_address_is_reported():
    assert (
        unavailable_reason(HostPort("tcp", ip_address("192.0.2.7"), 30080))
        == "Cannot assign requested address"
    )


def test_a_privileged_port_is_reported(monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ingress.socket.socket, "bind", forbidden)
    assert "run corral as root" in unavailable_reason(HostPort("tcp", LOOPBACK, 80))


def test_long_socket_paths_are_shortened(tmp_path):
    deep = tmp_path.joinpath(*["d" * 60] * 4)
    deep.mkdir(parents=True)
    inherited: list[int] = []
    with ingress._short_path(deep / "api.sock", inherited) as name:
        assert len(name) < 100
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(name)
        assert (deep / "api.sock").is_socket()
        assert len(inherited) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(inherited[0])


def test_machines_see_nothing_of_the_host():
    words = ingress.command(5, "/proc/self/fd/6/api.sock", 7, root=False)
    assert "--disable-host-loopback" in words
    assert "--configure" not in words  # it would lead all traffic out by this link
    assert words[-2:] == ["/proc/self/fd/5", "inbound"]
