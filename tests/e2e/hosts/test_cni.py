"""Guests on the network of CNI plugins: Debian's bridge and host-local, routed by two hosts."""

import json
import os
from pathlib import Path

import pytest
from tests.cluster import until
from tests.hosts import site, web_servers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
MTU = 1420
NETWORK = "corral-test"


def configure(host):
    """Have a host bridge its pods, whose addresses are of its node's range."""
    directory = host.directory / "net.d"
    directory.mkdir()
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "mtu": MTU,
        "capabilities": {"ipRanges": True, "mac": True},
        "ipam": {
            "type": "host-local",
            "dataDir": str(host.directory / "ipam"),
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    plugins = [bridge, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_notify": "1"}}]
    document = {"cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins}
    (directory / "10-test.conflist").write_text(json.dumps(document))


def options(host):
    return ("--boots", "1", "--cni-conf-dir", str(host.directory / "net.d"))


@pytest.fixture(scope="module")
def guests(tmp_path_factory, demo_disk):
    """Two hosts, whose administrator routes between their guests; one guest on each."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        for host in made.hosts:
            configure(host)
        made.first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up(*options(made.first), "--network-backend", "cni")
        made.join(made.hosts[1], *options(made.hosts[1]))
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        ranges = {name: node["spec"]["podCIDRs"][0] for name, node in made.nodes().items()}
        for host, other in (made.hosts, made.hosts[::-1]):
            host.ip("route", "add", ranges[other.name], "via", other.address)
        made.api.one.call("POST", SETS, web_servers(2))
        until("the guests answer", lambda: len(made.addresses()) == 2)
        until("their agents run commands", made.agents_run_commands)
        yield made


def leased(host):
    """The addresses that host-local keeps for pods of a host."""
    return {each.name for each in (host.directory / "ipam" / NETWORK).glob("*.*.*.*")}


def attachments(host):
    return list((host.layout.network / "cni").glob("*.json"))


def namespaces(host):
    """The pods' namespaces in /run of a host's manager or agent."""
    return list(Path(f"/proc/{host.pid}/root/run/netns").glob("corral-*"))


def test_pods_have_the_addresses_of_the_plugins(guests):
    for host in guests.hosts:
        assert leased(host) == {guests.addresses()[host.name]}
        assert len(attachments(host)) == len(namespaces(host)) == 1


def test_guests_of_different_hosts_reach_each_other(guests):
    assert guests.both_ways()


def test_packets_have_the_size_of_the_plugins_interface(guests):
    assert guests.in_guest(guests.first, "cat", "/sys/class/net/eth0/mtu").strip() == str(MTU)


def test_the_status_names_the_network(guests):
    status = guests.first.corral("status")
    assert f"CNI {NETWORK}" in status, status
    assert "bridge, tuning" in status


def test_a_killed_agent_takes_its_guest_up_again(guests):
    host = guests.hosts[1]
    before = guests.addresses()
    host.kill()
    host.corral("join", "--detach", *options(host))
    until("both nodes are ready", lambda: guests.ready(*guests.hosts))
    until("guests reach each other", guests.both_ways)
    assert guests.addresses() == before
    assert len(attachments(host)) == 1
    events = guests.first.kubectl("get", "events", "-o", "yaml")
    assert "FailedCreatePodSandBox" not in events, events
    # a machine that starts anew may have no lease of an old one
    guests.first.kubectl("delete", "vmi", "--all")
    until("others have taken their place", lambda: len(guests.addresses()) == 2)
    until("the old ones are released", lambda: all(_clean(guests, each) for each in guests.hosts))


def _clean(guests, host):
    """Return whether a host keeps nothing but the network of its one guest."""
    return leased(host) == {guests.addresses().get(host.name)} and len(namespaces(host)) == 1
