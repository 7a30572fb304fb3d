"""The ways between the machine namespaces of two hosts, made and removed as Nodes come and go."""

import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

import pytest
from tests.hosts import Host, site

from corral.node.network import host_gateway, netlink
from corral.node.network.host_gateway import TABLE, HostGateway, link_name
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError
from corral.node.network.overlay import Backend
from corral.node.network.peers import Peer, tunnel_address
from corral.node.network.vxlan import HEADER_BYTES, Vxlan

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CLUSTER = ip_network("10.244.0.0/16")
RANGES = [ip_network("10.244.0.0/24"), ip_network("10.244.1.0/24")]


PORT = 5000
HEADERS = 28
"""Bytes of IPv4 and UDP in a packet."""
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # linux/in.h


def _datagrams():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@dataclass
class End:
    """A host with its machine namespace and backend; ``peer`` is how others see it."""

    host: Host
    inside: Namespace
    machines: Namespace
    backend: Backend
    peer: Peer

    async def lead_to(self, *others):
        peers = {each.peer.address: each.peer for each in others}
        await self.backend.apply(self.peer.ranges, peers, [])

    def sends(self, other, mtu=1500, *, attempts=30):
        """Return whether datagrams that fill a packet reach another machine namespace.

        One at a time may be lost, while neighbours are resolved.
        """
        target = str(tunnel_address(other.peer.ranges[0]))
        with (
            other.machines.run(_datagrams) as receiver,
            self.machines.run(_datagrams) as sender,
        ):
            receiver.bind((target, PORT))
            receiver.settimeout(1)
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            for _ in range(attempts):
                sender.sendto(bytes(mtu - HEADERS), (target, PORT))
                with suppress(TimeoutError):
                    return len(receiver.recv(2000)) == mtu - HEADERS
        return False

    def routes(self):
        def read():
            with netlink.opened() as link:
                return dict(link.routes(4, table=TABLE))

        return self.inside.run(read)

    def forwards(self):
        return self.inside.run(netlink.get_sysctl, "ipv4/conf/eth0/forwarding")


def make(host, number, backend, *, address=None):
    """Return a host whose backend a function makes, given the host, its namespace and address."""
    inside = Namespace(os.open(f"/run/netns/{host.namespace}", os.O_RDONLY))
    machines = Namespace.create()

    def prepare():
        with netlink.opened() as link:
            link.change("lo")
        netlink.set_sysctl("ipv4/ip_forward", 1)

    machines.run(prepare)
    own = ip_address(address or host.address)
    made = inside.run(backend, host, machines, own)
    return End(host, inside, machines, made, Peer(own, (RANGES[number],)))


def host_gw(host, machines, address, *, routes_peers=True):
    return HostGateway(
        host.directory, machines, address=address, pod_cidrs=[CLUSTER], routes_peers=routes_peers
    )


def none(host, machines, address):
    return host_gw(host, machines, address, routes_peers=False)


def vxlan(host, machines, address):
    return Vxlan(host.directory, machines, address=address, vni=7, pod_cidrs=[CLUSTER])


def left():
    """Return the rules and routes of host-gw on a host, and the names of its links."""
    with netlink.opened() as link:
        return [*link.rules(4, TABLE), *link.routes(4, table=TABLE)], link.links().keys()


@pytest.fixture
def two(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path, 2) as made:
        yield [make(host, number, host_gw) for number, host in enumerate(made.hosts)]


async def test_packets_of_full_size_go_both_ways(two):
    one, other = two
    await one.lead_to(other)
    await other.lead_to(one)
    assert one.sends(other)
    assert other.sends(one)
    await one.lead_to(other)
    assert one.sends(other), "the second time changes nothing"
    assert one.routes() == {RANGES[0]: link_name(one.host.directory), RANGES[1]: "eth0"}


async def test_routes_go_with_their_peer(two):
    one, other = two
    await one.lead_to(other)
    await one.lead_to()
    assert one.routes().keys() == {RANGES[0]}


async def test_a_peer_behind_a_router_is_refused_by_address_and_the_others_are_led_to(two):
    one, other = two
    far = Peer(ip_address("203.0.113.9"), (ip_network("10.244.250.0/24"),))
    peers = {each.address: each for each in (far, other.peer)}
    with pytest.raises(NetworkError, match=r"203\.0\.113\.9 is not on the link eth0") as failure:
        await one.backend.apply([RANGES[0]], peers, [])
    assert "--network-backend vxlan" in failure.value.hint
    assert one.routes() == {RANGES[0]: link_name(one.host.directory), RANGES[1]: "eth0"}


async def test_an_address_of_no_interface_is_refused(two):
    one = make(two[0].host, 0, host_gw, address="192.0.2.99")
    with pytest.raises(NetworkError, match=r"no interface of this host has the address 192\.0\.2"):
        await one.lead_to(two[1])


async def test_hosts_of_ipv6_need_another_backend(two):
    one = make(two[0].host, 0, host_gw, address="2001:db8::1")
    with pytest.raises(NetworkError, match="host-gw leads IPv4"):
        await one.lead_to(two[1])


async def test_nothing_stays_behind_the_last_link(two):
    one, other = two
    await one.lead_to(other)
    one.inside.run(host_gateway.remove, one.host.directory)
    assert one.inside.run(left) == ([], {"lo", "eth0"})
    assert one.forwards() == "0"
    assert not list(one.host.directory.iterdir())


async def test_a_host_that_forwarded_before_or_does_for_others_goes_on(two):
    one, other = two
    other.inside.run(netlink.set_sysctl, "ipv4/conf/eth0/forwarding", 1)
    for each, peer in ((one, other), (other, one)):
        await each.lead_to(peer)
        await each.lead_to(peer)
    one.inside.run(netlink.set_sysctl, "ipv4/ip_forward", 1)
    for each in two:
        each.inside.run(host_gateway.remove, each.host.directory)
        assert each.forwards() == "1"


async def test_without_routes_to_peers_the_main_table_leads_there(two):
    one, other = (make(each.host, number, none) for number, each in enumerate(two))
    await one.lead_to(other)
    await other.lead_to(one)
    assert not one.sends(other, attempts=2)
    route(one, other)
    route(other, one)
    assert one.sends(other)
    assert other.sends(one)


def route(end, target):
    """Add a route as an administrator does."""
    words = ("route", "add", str(target.peer.ranges[0]), "via", target.host.address)
    subprocess.run(["ip", "-n", end.host.namespace, *words], check=True)


async def test_vxlan_leaves_room_for_its_headers(two):
    one, other = (make(each.host, number, vxlan) for number, each in enumerate(two))
    await one.lead_to(other)
    await other.lead_to(one)
    mtu = 1500 - HEADER_BYTES[4]
    assert one.sends(other, mtu)
    assert other.sends(one, mtu)
    with pytest.raises(OSError, match="Message too long"):
        one.sends(other, mtu + 1)


async def test_vxlan_forgets_hosts_that_have_left(two):
    one, other = (make(each.host, number, vxlan) for number, each in enumerate(two))
    await one.lead_to(other)
    await one.backend.apply(one.peer.ranges, {}, [other.peer])

    def routes():
        with netlink.opened() as link:
            return [each for each, device in link.routes(4) if device == OVERLAY_LINK]

    assert one.machines.run(routes) == []


async def test_another_backend_replaces_the_link(two):
    one, other = two
    await one.lead_to(other)
    await other.lead_to(one)
    for backend, mtu in ((vxlan, 1450), (host_gw, 1500)):
        for each in (one, other):
            own = each.peer.address
            each.backend = each.inside.run(backend, each.host, each.machines, own)
        await one.lead_to(other)
        await other.lead_to(one)
        assert one.sends(other, mtu)
        uses_routes = mtu == 1500
        assert bool(one.inside.run(left)[0]) is uses_routes
        assert one.forwards() == str(int(uses_routes))


async def test_two_corrals_of_a_host_need_ranges_of_their_own(two, tmp_path):
    one, other = two
    await one.lead_to(other)
    before = one.routes()
    elsewhere = replace(one.host, directory=tmp_path / "elsewhere")
    elsewhere.directory.mkdir()
    second = make(elsewhere, 0, host_gw)
    with pytest.raises(NetworkError, match="another corral of this host") as failure:
        await second.lead_to(other)
    assert f"({one.host.directory.parent})" in failure.value.message
    assert "--pod-cidr" in failure.value.hint
    assert one.routes() == before
    one.inside.run(host_gateway.remove, one.host.directory)
    await second.lead_to(other)
    assert one.routes() == {RANGES[0]: link_name(elsewhere.directory), RANGES[1]: "eth0"}
