"""The ways between the machine namespaces of two hosts, made and removed as Nodes come and go."""

import os
import subprocess
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from tests.e2e.network.ends import (
    RANGES,
    datagrams,
    host_gw,
    key_file,
    make,
    none,
    vxlan,
    wireguard,
)
from tests.hosts import site

from corral.config import WIREGUARD_PORT
from corral.node.network import host_gateway, netlink, wireguard_kernel
from corral.node.network.host_gateway import TABLE, link_name
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.netlink import NetworkError
from corral.node.network.peers import Peer
from corral.node.network.vxlan import HEADER_BYTES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SMALL = 1000
"""Bytes of a packet that no backend finds too large."""
IPV4 = [each[0] for each in RANGES]


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
    assert one.routes() == {IPV4[0]: link_name(one.host.directory), IPV4[1]: "eth0"}


async def test_routes_go_with_their_peer(two):
    one, other = two
    await one.lead_to(other)
    await one.lead_to()
    assert one.routes().keys() == {IPV4[0]}


async def test_a_peer_behind_a_router_is_refused_by_address_and_the_others_are_led_to(two):
    one, other = two
    far = Peer(ip_address("203.0.113.9"), (ip_network("10.244.250.0/24"),))
    peers = {each.address: each for each in (far, other.peer)}
    with pytest.raises(NetworkError, match=r"203\.0\.113\.9 is not on the link eth0") as failure:
        await one.backend.apply(one.peer, peers)
    assert "--network-backend vxlan" in failure.value.hint
    assert one.routes() == {IPV4[0]: link_name(one.host.directory), IPV4[1]: "eth0"}


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


@pytest.mark.parametrize("version", [4, 6])
async def test_wireguard_leaves_room_for_its_headers(two, version):
    hosts = [each.host for each in two]
    addresses = [f"2001:db8::{each.number}" if version == 6 else each.address for each in hosts]
    if version == 6:
        for host, address in zip(hosts, addresses, strict=True):
            host.ip("address", "add", f"{address}/64", "dev", "eth0", "nodad")
    one, other = (
        make(host, number, wireguard, address=address)
        for number, (host, address) in enumerate(zip(hosts, addresses, strict=True))
    )
    await one.lead_to(other)
    await other.lead_to(one)
    for source, target in ((one, other), (other, one)):
        mtu = source.overlay().mtu
        for size in range(mtu - 20, mtu + 1):
            assert source.sends(target, size)
        with pytest.raises(OSError, match="Message too long"):
            source.sends(target, mtu + 1)
    for each in two:
        assert each.fragments() == 0


async def test_wireguard_forgets_hosts_that_have_left(two):
    one, other = (make(each.host, number, wireguard) for number, each in enumerate(two))
    await one.lead_to(other)
    await other.lead_to(one)
    assert one.sends(other, SMALL)
    await one.lead_to()
    assert [*(await one.wireguard()).peers] == []
    assert not other.sends(one, SMALL, attempts=2)


async def test_wireguard_leads_nowhere_without_a_key(two):
    one, other = (make(each.host, number, wireguard) for number, each in enumerate(two))
    await one.lead_to(other)
    for key in (None, one.peer.key):
        with pytest.raises(NetworkError, match=rf"{other.host.address} has no WireGuard key"):
            await one.lead_to(replace(other.peer, key=key))
        assert not (await one.wireguard()).peers
        assert one.inner_routes(other.peer.ranges[0].network_address) == []


async def test_wireguard_takes_over_its_device_and_a_new_key(two):
    one, other = (make(each.host, number, wireguard) for number, each in enumerate(two))
    await one.lead_to(other)
    await other.lead_to(one)
    index = one.overlay().index
    key_file(other.host).unlink()
    one, other = (again(one, one.machines), again(other, other.machines))
    await one.lead_to(other)
    await other.lead_to(one)
    assert one.overlay().index == index
    assert one.sends(other, SMALL)
    assert other.sends(one, SMALL)


def again(end, machines):
    """Return a host as another manager has it, with the namespace of the former one."""
    fresh = make(end.host, 0, wireguard, address=str(end.peer.address), machines=machines)
    return replace(fresh, peer=replace(end.peer, key=fresh.peer.key))


@pytest.mark.skipif(wireguard_kernel.is_in_kernel(), reason="the device is the kernel's")
async def test_a_wireguard_process_that_was_killed_is_replaced(two):
    one, other = (make(each.host, number, wireguard) for number, each in enumerate(two))
    await one.lead_to(other)
    await other.lead_to(one)
    process = await one.process()
    process.kill()
    await process.wait()
    await one.lead_to(other)
    assert one.sends(other, SMALL)


async def test_wireguard_needs_its_port(two):
    one = make(two[0].host, 0, wireguard)
    with one.inside.run(datagrams) as taken:
        taken.bind(("", WIREGUARD_PORT))
        with pytest.raises(NetworkError, match="UDP port 51820 of this host cannot be used"):
            await one.lead_to(two[1])
    await one.lead_to(two[1])


async def test_vxlan_forgets_hosts_that_have_left(two):
    one, other = (make(each.host, number, vxlan) for number, each in enumerate(two))
    await one.lead_to(other)
    await one.backend.apply(one.peer, {}, [other.peer])

    def routes():
        with netlink.opened() as link:
            return [each for each, device in link.routes(4) if device == OVERLAY_LINK]

    assert one.machines.run(routes) == []


async def test_another_backend_replaces_the_link(two):
    one, other = two
    await one.lead_to(other)
    await other.lead_to(one)
    former = None
    for backend, mtu in ((vxlan, 1450), (wireguard, 1420), (host_gw, 1500), (wireguard, 1420)):
        for each in (one, other):
            own = each.peer.address
            each.backend = each.inside.run(backend, each.host, each.machines, own)
        await one.lead_to(other)
        await other.lead_to(one)
        assert one.sends(other, mtu)
        if former is not None:
            await former.wait()
        former = await one.process()
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
    assert one.routes() == {IPV4[0]: link_name(elsewhere.directory), IPV4[1]: "eth0"}
