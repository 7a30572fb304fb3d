"""Guests of two hosts whose traffic WireGuard encrypts, as users and an eavesdropper see it."""

import asyncio
import json
import os
import socket
import stat
import struct
from contextlib import contextmanager
from ipaddress import ip_network

import pytest
from tests.cluster import until
from tests.e2e.hosts.test_live_migration import neighbour, user_of
from tests.e2e.network.ends import wireguard_state
from tests.e2e.test_live_migration import COUNT, PORT, REFERENCE, Stream, ended
from tests.hosts import API_PORT, KUBELET_PORT, site, web_servers

from corral.api.kinds.core.node_addresses import WIREGUARD_KEY
from corral.config import WIREGUARD_PORT
from corral.node.host import process
from corral.node.network.namespaces import Namespace
from corral.node.network.wireguard_userspace import helper_directory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SET = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"
SERVICES = "/api/v1/namespaces/default/services"
BOOTS = ("--boots", "1")
NAME_LABEL = "vm.kubevirt.io/name"
MARKER = "a-secret-that-nobody-reads"
ETH_P_ALL, ETH_P_IP = 3, 0x0800
TCP, UDP = 6, 17
OTHER_PORT = 4500
OUTER = {(UDP, min(WIREGUARD_PORT, OTHER_PORT))}
"""The second host listens on a port of its own."""


@pytest.fixture(scope="module")
def guests(tmp_path_factory, demo_disk):
    """Two hosts with a guest on each, whose web servers answer."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 2) as made:
        made.first.corral("image", "import", str(demo_disk), REFERENCE)
        made.up(*BOOTS, "--network-backend", "wireguard")
        made.join(made.hosts[1], *BOOTS, "--wireguard-port", str(OTHER_PORT))
        until("both nodes are ready", lambda: made.ready(*made.hosts))
        made.api.one.call("POST", SET, web_servers(2))
        until("the guests answer", lambda: len(made.addresses()) == 2)
        until("their agents run commands", made.agents_run_commands)
        yield made


@contextmanager
def machines_of(host):
    """The namespace of a host's machines."""
    holder = process.find(host.layout.network / "holder")
    with Namespace.of_process(holder.pid) as machines:
        yield machines


def peers(host):
    """The peers of a host's device, by public key."""
    with machines_of(host) as machines:
        return asyncio.run(wireguard_state(machines, host.layout.network)).peers


@contextmanager
def capture(host):
    """A list of the frames on a host's cable during the block, complete after it."""
    frames = []
    with Namespace(os.open(f"/run/netns/{host.namespace}", os.O_RDONLY)) as inside:
        tap = inside.run(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with tap:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        tap.bind(("eth0", ETH_P_ALL))
        yield frames
        tap.setblocking(False)
        while True:
            try:
                frames.append(tap.recv(1 << 16))
            except BlockingIOError:
                return


def flows(frames):
    """The protocols of the IPv4 packets in frames, each with its lower port."""
    found = set()
    for frame in frames:
        if struct.unpack_from("!H", frame, 12)[0] == ETH_P_IP:
            header = 14 + 4 * (frame[14] & 15)
            found.add((frame[23], min(struct.unpack_from("!HH", frame, header))))
    return found


def name_on(guests, node):
    """The name of the one VMI on a node."""
    return guests.ready_pods()[node]["metadata"]["labels"][NAME_LABEL]


def test_status_says_that_traffic_between_hosts_is_encrypted(guests):
    assert guests.both_ways()
    for host in guests.hosts:
        assert "between hosts by wireguard, encrypted" in host.corral("status", check=False)
        assert stat.S_IMODE(host.layout.wireguard_key.stat().st_mode) == 0o600
    keys = {each["metadata"]["annotations"][WIREGUARD_KEY] for each in guests.nodes().values()}
    assert len(keys) == 2


def test_nobody_on_the_way_reads_what_guests_say(guests):
    selector = {NAME_LABEL: name_on(guests, "host2")}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": selector, "ports": [{"port": 80}]},
    }
    guests.api.one.call("POST", SERVICES, service)
    until("the Service has its guest", lambda: endpoints(guests) == [guests.addresses()["host2"]])
    address = guests.api.one.call("GET", f"{SERVICES}/web")["spec"]["clusterIP"]
    with capture(guests.first) as frames:
        for each in (guests.addresses()["host2"], address):
            url = f"http://{each}/{MARKER}"
            answer = guests.in_guest(
                guests.first, "sh", "-c", f"wget -T 5 -O - {url} 2>&1", check=False
            )
            assert "404" in answer
    assert MARKER.encode() not in b"".join(frames)
    assert flows(frames) <= {*OUTER, (TCP, API_PORT), (TCP, KUBELET_PORT)}
    assert flows(frames) >= OUTER


def endpoints(guests):
    slices = guests.api.items("endpointslices")
    return [
        address
        for each in slices
        if each["metadata"]["labels"].get("kubernetes.io/service-name") == "web"
        for endpoint in each.get("endpoints") or ()
        for address in endpoint["addresses"]
    ]


def test_another_agent_takes_over_the_device(guests):
    host = guests.hosts[1]
    before, keys = process.find(helper_directory(host.layout.network)), peers(guests.first).keys()
    host.corral("stop")
    host.corral("join", "--detach", *BOOTS, "--wireguard-port", str(OTHER_PORT))
    until("the node is ready", lambda: guests.ready(host))
    assert guests.both_ways()
    assert process.find(helper_directory(host.layout.network)) == before
    assert peers(guests.first).keys() == keys


def test_a_connection_goes_on_while_its_machine_moves(guests):
    first, second = guests.hosts
    address = guests.addresses()["host2"]
    guests.in_guest(
        second, "sh", "-c", f"setsid sh -c '{COUNT % PORT}' >/dev/null 2>&1 </dev/null &"
    )
    pod = neighbour(second, guests.nodes()["host2"]["spec"]["podCIDR"])
    with pod.namespace:
        stream = Stream(address, lambda where: pod.connect(where, 60))
        stream.count(20)
        migration = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "away"},
            "spec": {"vmiName": name_on(guests, "host2")},
        }
        first.kubectl("create", "-f", "-", input=json.dumps(migration))
        assert ended(user_of(guests), "away")["status"]["phase"] == "Succeeded"
        stream.count(100)
        stream.close()
    assert stream.failure is None
    assert stream.values == list(range(len(stream.values)))
    [peer] = peers(second).values()
    assert ip_network(address) in peer.allowed


def test_a_host_that_leaves_is_no_peer_any_more(guests):
    first, second = guests.hosts
    second.corral("leave", "--grace-period", "0")
    until("the first host has no peer", lambda: not peers(first))
    assert not second.layout.wireguard_key.exists()
    assert process.find(helper_directory(second.layout.network)) is None
