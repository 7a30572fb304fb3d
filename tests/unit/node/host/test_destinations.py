"""Where tenants may make this host connect to, in every way of writing an address."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from corral import hosts
from corral.node.host.destinations import (
    ANYWHERE,
    Destinations,
    Refused,
    forbidden_to_guests,
    unwrapped,
)

CLUSTER = Destinations(cluster=(ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")))


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.10", "loopback"),
        ("localhost", "loopback"),
        ("2130706433", "loopback"),
        ("0x7f.1", "loopback"),
        ("127.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:0:7f00:1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0", "unspecified"),
        ("::", "unspecified"),
        ("::127.0.0.1", "reserved"),
        ("2001:0:7f00:1::", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("240.0.0.1", "reserved"),
        ("169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("168.63.129.16", "the metadata of a cloud"),
        ("100.100.100.200", "the metadata of a cloud"),
        ("192.0.0.192", "the metadata of a cloud"),
        ("fd00:ec2::254", "the metadata of a cloud"),
        ("fd20:ce::254", "the metadata of a cloud"),
        ("10.244.3.7", "of the cluster"),
        ("::ffff:10.244.3.7", "of the cluster"),
        ("fd00:10:244::7", "of the cluster"),
    ],
)
def test_addresses_of_the_host_and_the_cluster_are_rejected(host, what):
    with pytest.raises(Refused, match=f"{host} is not connected to: its address is {what}, which"):
        CLUSTER.addresses(host, 80)
    CLUSTER.require_allowed("images.example")
    with pytest.raises(Refused):
        CLUSTER.require_allowed(host)
    assert ANYWHERE.addresses(host, 80)


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "172.16.4.4", "192.168.1.10", "100.64.0.1", "198.51.100.7", "fd12::7",
             "2606:4700::1", "::ffff:198.51.100.7", "64:ff9b::c633:6407"],
)  # fmt: skip
def test_addresses_that_guests_can_reach_are_allowed(host):
    assert CLUSTER.addresses(host, 80) == [str(ip_address(host))] or "." in host
    CLUSTER.require_allowed(host)


def test_the_hosts_own_addresses_are_rejected():
    found = map(ip_address, hosts.addresses())
    mine = [str(each) for each in found if not each.is_loopback and not each.is_link_local]
    for address in mine:
        with pytest.raises(Refused, match="the host's own"):
            CLUSTER.addresses(address, 80)
    allowed = Destinations(allowed=tuple(map(ip_network, mine)))
    assert [allowed.addresses(each, 80) for each in mine] == [[each] for each in mine]


def test_administrators_can_allow_ranges():
    opened = Destinations(allowed=(ip_network("127.0.0.0/8"), ip_network("10.244.3.0/24")))
    assert opened.addresses("127.0.0.1", 80) == ["127.0.0.1"]
    assert opened.addresses("::ffff:127.0.0.1", 80)
    assert not opened.refusal_reason(ip_address("10.244.3.9"))
    for other in ("169.254.169.254", "::1", "0.0.0.0"):
        with pytest.raises(Refused):
            opened.addresses(other, 80)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "deep.localhost", "127.1", "0x7f.1"])
def test_names_of_this_host_are_rejected_even_with_a_proxy(host):
    with pytest.raises(Refused):
        CLUSTER.require_allowed(host)


def answers(monkeypatch, *results):
    """Let names mean other addresses each time that they are looked up."""
    resolved = []

    def looked_up(host, port, **_):
        resolved.append(host)
        addresses = results[min(len(resolved), len(results)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return resolved


def test_the_checked_address_is_connected_to(monkeypatch):
    """A name that means another address the next time (DNS rebinding) changes nothing."""
    resolved, dialled = answers(monkeypatch, ["198.51.100.7"], ["127.0.0.1"]), []
    monkeypatch.setattr(
        socket, "create_connection", lambda address, timeout: dialled.append(address)
    )
    CLUSTER.connect("rebinding.example", 80, seconds=1)
    assert dialled == [("198.51.100.7", 80)]
    assert resolved == ["rebinding.example"]
    with pytest.raises(Refused, match="loopback"):
        CLUSTER.connect("rebinding.example", 80, seconds=1)
    assert len(dialled) == 1


def test_of_several_addresses_only_allowed_ones_are_tried(monkeypatch):
    answers(monkeypatch, ["127.0.0.1", "198.51.100.7", "10.244.0.9"])
    assert CLUSTER.addresses("several.example", 80) == ["198.51.100.7"]


def test_the_next_address_is_tried_if_one_does_not_respond():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with ANYWHERE.connect("localhost", port, seconds=60) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)
    with socket.socket() as taken:  # so that nobody else answers there
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="refused"):
            ANYWHERE.connect("localhost", taken.getsockname()[1], seconds=60)


def test_ipv4_mapped_addresses_are_checked():
    clothes = ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2002:c000:201::5", "::ffff:0:192.0.2.1"]
    assert {str(unwrapped(ip_address(each))) for each in clothes} == {"192.0.2.1"}
    assert str(unwrapped(ip_address("2001:db8::1"))) == "2001:db8::1"


def test_guests_cannot_reach_cloud_metadata():
    four, six = (list(map(str, forbidden_to_guests(version, ()))) for version in (4, 6))
    assert four == ["100.100.100.200/32", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32"]
    assert {"fd00:ec2::254/128", "fd20:ce::254/128", "64:ff9b::a9fe:0/112"} <= set(six)


def test_guests_reach_only_allowed_ranges():
    allowed = [ip_network("168.63.129.16/32"), ip_network("169.254.128.0/17")]
    four, six = (list(map(str, forbidden_to_guests(version, allowed))) for version in (4, 6))
    assert four == ["100.100.100.200/32", "169.254.0.0/17", "192.0.0.192/32"]
    assert "64:ff9b::a9fe:0/113" in six
    assert "64:ff9b::a83f:8110/128" not in six
    assert forbidden_to_guests(4, [ip_network("0.0.0.0/0")]) == []
