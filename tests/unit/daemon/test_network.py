"""The machine network's summary, with and without a network."""

from ipaddress import ip_address, ip_network

import pytest

from corral.config import Hollow, Settings
from corral.daemon import network as networking
from corral.daemon.errors import CannotStart
from corral.daemon.network import Networking, api_names
from corral.daemon.run import run
from corral.node.network import machine_network
from corral.node.network.netlink import NetworkError


@pytest.mark.parametrize(
    "chosen", [{"network": False}, {"hollow": Hollow()}, {"controllers": False}]
)
async def test_a_disabled_network_is_neither_created_nor_reported(tmp_path, chosen):
    network = Networking.join(Settings(directory=tmp_path, **chosen))
    await network.prepare()
    assert network.machines is None
    assert network.facts() == {}
    assert network.summary() == {}
    assert not (tmp_path / "network").exists()


async def test_a_network_without_nftables_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_network.namespace_holder, "join", lambda *_: None)
    monkeypatch.setattr(
        machine_network.nft, "unavailable_reason", lambda: "libnftables.so.1 is missing"
    )
    network = Networking.join(Settings(directory=tmp_path))
    await network.prepare()
    assert network.machines is None
    assert network.summary() == {
        "network": "QEMU's user network: machines have no addresses of their own",
        "wrong": "network: libnftables.so.1 is missing. Install it: apt-get install libnftables1",
    }


async def test_a_user_without_namespaces_gets_the_reason(tmp_path, monkeypatch):
    def refused(*_):
        raise NetworkError("no user namespace can be made", "The system forbids it")

    monkeypatch.setattr(machine_network.namespace_holder, "join", refused)
    network = Networking.join(Settings(directory=tmp_path))
    await network.prepare()
    assert network.facts()["reason"] == "no user namespace can be made. The system forbids it"


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("vxlan", "between hosts by vxlan, not encrypted"),
        ("host-gw", "between hosts by host-gw, not encrypted"),
        ("none", "between hosts by your routes, not encrypted"),
        ("wireguard", "between hosts by wireguard, encrypted"),
    ],
)
def test_the_status_says_whether_traffic_between_hosts_is_encrypted(backend, words):
    assert networking.between_hosts(backend) == words


@pytest.fixture
def without_wireguard(monkeypatch):
    """A host as root's that has WireGuard neither in its kernel nor as a program."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("corral.node.network.wireguard_kernel.is_in_kernel", lambda: False)
    monkeypatch.setattr("corral.node.network.wireguard_userspace.which", lambda _: None)


def test_a_host_without_wireguard_says_what_is_missing(tmp_path, without_wireguard):
    network = Networking.join(Settings(directory=tmp_path, network_backend="wireguard"))
    with pytest.raises(NetworkError, match="no module wireguard, and wireguard-go") as failure:
        network.require_encryption()
    assert "apt-get install wireguard-go" in failure.value.hint
    assert str(failure.value) in network.facts()["reason"]
    Networking.join(Settings(directory=tmp_path)).require_encryption()


async def test_a_manager_does_not_start_without_the_wireguard_it_shall_use(
    tmp_path, without_wireguard
):
    settings = Settings(directory=tmp_path, network_backend="wireguard")
    with pytest.raises(CannotStart, match="finds no WireGuard"):
        await run(settings, Networking.join(settings), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_wireguard_needs_root(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_network.namespace_holder, "join", lambda *_: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    network = Networking.join(Settings(directory=tmp_path, network_backend="wireguard"))
    with pytest.raises(NetworkError, match="wireguard needs root"):
        network.require_encryption()


async def test_plugins_need_root(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    network = Networking.join(Settings(directory=tmp_path, network_backend="cni"))
    await network.prepare()
    assert network.pods is None
    assert "CNI plugins need root" in network.facts()["reason"]


def test_the_api_server_has_the_names_that_machines_use(tmp_path):
    settings = Settings(directory=tmp_path, service_cidrs=(ip_network("10.99.0.0/16"),))
    names = api_names(settings)
    assert {"kubernetes", "kubernetes.default.svc.cluster.local", "10.99.0.1"} <= set(names)
    assert networking.DOMAIN == "cluster.local"


def test_downloads_cannot_reach_pods_services_or_link_local_addresses(tmp_path):
    allowed = (ip_network("127.0.0.1/32"),)
    found = networking.destinations(Settings(directory=tmp_path, allowed_destinations=allowed))
    for each in (
        "10.244.0.9",
        "10.96.0.1",
        "fd00:10:96::1",
        "fd00:169:254:4c00::1",
        "fd00:10:77::1",
    ):
        assert found.refusal_reason(ip_address(each)) == "of the cluster"
    assert found.refusal_reason(ip_address("169.254.76.1")) == "link-local"
    assert not found.refusal_reason(ip_address("127.0.0.1"))


def test_services_cannot_use_addresses_of_pods_or_kept_ports(tmp_path):
    kept = (range(8000, 8100),)
    found = Networking(Settings(directory=tmp_path, kept_ports=kept), None).service_ranges()
    assert found.kept_ports == kept
    for each in ("10.244.0.9", "fd00:10:244::9", "169.254.76.1"):
        assert any(ip_address(each) in network for network in found.pods)
