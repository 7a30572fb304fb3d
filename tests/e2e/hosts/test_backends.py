"""Guests of two hosts without VXLAN: by routes of corral, and by routes of an administrator."""

import os

import pytest
from tests.cluster import until
from tests.hosts import site, web_servers

from corral.node.network.host_gateway import PREFIX, RULE_PRIORITY, TABLE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
BOOTS = ("--boots", "1")


@pytest.fixture(scope="module")
def guests(tmp_path_factory, demo_disk):
    """Two hosts that route between their guests, one on each, whose web servers answer."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        made.first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up(*BOOTS, "--network-backend", "host-gw")
        made.join(made.hosts[1], *BOOTS)
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        made.api.one.call("POST", SET, web_servers(2))
        until("the guests answer", lambda: len(made.addresses()) == 2)
        until("their agents run commands", made.agents_run_commands)
        yield made


def test_hosts_of_one_link_route_to_each_others_guests(guests):
    assert guests.both_ways()
    assert "between hosts by host-gw, not encrypted" in guests.first.corral("status", check=False)
    for host, other in (guests.hosts, guests.hosts[::-1]):
        routes = host.ip("route", "show", "table", str(TABLE))
        (theirs,) = (line for line in routes.splitlines() if "eth0" in line)
        cidr = guests.nodes()[other.name]["spec"]["podCIDRs"][0]
        assert theirs.startswith(f"{cidr} via {other.address} dev eth0")
        assert f"{RULE_PRIORITY}:" in host.ip("rule")
        assert "vxlan" not in host.ip("-d", "link")


def test_packets_have_the_size_of_the_link(guests):
    address = guests.addresses()["host2"]
    ping = ("ping", "-c", "1", "-W", "5", "-s", str(1500 - 28), address)
    # A datagram may be lost while neighbours are resolved.
    until(
        "a packet of full size arrives",
        lambda: " 0% packet loss" in guests.in_guest(guests.first, *ping, check=False),
    )


def test_a_lost_link_is_restored(guests):
    (link,) = (
        line.split(":")[1].partition("@")[0].strip()
        for line in guests.first.ip("-o", "link").splitlines()
        if PREFIX in line
    )
    guests.first.ip("link", "delete", link)
    until("guests reach each other again", guests.both_ways)


def test_an_administrator_may_route_instead(guests):
    nodes = guests.nodes()
    for host in guests.hosts:
        host.corral("stop")
    guests.up(*BOOTS, "--network-backend", "none")
    guests.hosts[1].corral("join", "--detach", *BOOTS)
    until("both nodes are ready", lambda: guests.ready(*guests.hosts))
    until("guests are apart", lambda: "timed out" in guests.fetch(*guests.hosts))
    for host, other in (guests.hosts, guests.hosts[::-1]):
        host.ip("route", "add", nodes[other.name]["spec"]["podCIDRs"][0], "via", other.address)
    until("guests reach each other", guests.both_ways)
    assert "has other routes" not in guests.first.corral("status", check=False)


def test_nothing_is_left_on_a_host(guests):
    host = guests.hosts[1]
    host.corral("leave", "--grace-period", "0")
    assert PREFIX not in host.ip("link")
    assert f"{RULE_PRIORITY}:" not in host.ip("rule")
    assert host.ip("route", "show", "table", "all", "type", "unicast").count(f"table {TABLE}") == 0
