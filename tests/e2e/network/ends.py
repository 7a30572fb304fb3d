"""Hosts with machine namespaces and a backend between them, for tests of the ways between hosts."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

from tests.hosts import Host

from corral.node.host.process import Process
from corral.node.network import netlink, nft
from corral.node.network.antispoof import machine_rules
from corral.node.network.host_gateway import TABLE, HostGateway
from corral.node.network.machine_network import LIBERAL
from corral.node.network.namespace_nft_rules import OVERLAY_LINK, rules
from corral.node.network.namespaces import Namespace
from corral.node.network.overlay import Backend
from corral.node.network.peers import Peer, tunnel_address
from corral.node.network.pod_layout import MACHINE_MAC
from corral.node.network.vxlan import Vxlan
from corral.node.network.wireguard import Wireguard
from corral.node.network.wireguard_kernel import KernelDevice
from corral.node.network.wireguard_userspace import (
    UserspaceDevice,
    device_name,
    helper_directory,
)
from corral.pki import wireguard_key, wireguard_public_key

CLUSTERS = [ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")]
RANGES = [
    (ip_network(f"10.244.{number}.0/24"), ip_network(f"fd00:10:244:{number}::/64"))
    for number in range(3)
]
"""The ranges of each host's node."""

PORT = 5000
HEADERS = 28
"""Bytes of IPv4 and UDP in a packet."""
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # linux/in.h


def datagrams():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@dataclass
class End:
    """A host with its machine namespace and backend; ``peer`` is how others see it."""

    host: Host
    inside: Namespace
    machines: Namespace
    backend: Backend
    peer: Peer

    async def lead_to(self, *others, left=()):
        """Sync with other hosts, each an End or a Peer."""
        peers = [each if isinstance(each, Peer) else each.peer for each in others]
        await self.backend.apply(self.peer, {each.address: each for each in peers}, (), left)

    def with_moved(self, *addresses):
        """Return the host as the API shows it once addresses have moved there."""
        return replace(self.peer, moved=tuple(map(ip_network, addresses)))

    def sends(self, other, mtu=1500, *, attempts=30):
        """Return whether datagrams that fill a packet reach another machine namespace.

        One at a time may be lost, while neighbours are resolved.
        """
        target = str(tunnel_address(other.peer.ranges[0]))
        with (
            other.machines.run(datagrams) as receiver,
            self.machines.run(datagrams) as sender,
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
        """The routes of pods on the host, each with its link."""

        def read():
            with netlink.opened() as link:
                return dict(link.routes(4, table=TABLE))

        return self.inside.run(read)

    def inner_routes(self, address):
        """The links of the machine namespace by which an address is reached, by itself."""

        def read():
            with netlink.opened() as link:
                return [
                    device
                    for each, device in link.routes(address.version)
                    if each == ip_network(address)
                ]

        return self.machines.run(read)

    def protect(self):
        """Have the rules of a machine namespace."""
        text = rules([each[1] for each in CLUSTERS], pod_cidrs=CLUSTERS) + machine_rules()
        self.machines.run(nft.apply, text)
        self.machines.run(netlink.set_sysctl, LIBERAL, 1)

    def overlay(self):
        """The link of the machine namespace to other hosts."""
        return self.machines.run(overlay)

    def fragments(self):
        """The number of fragments that the host has sent."""

        def read():
            names, values = (
                line.split()
                for line in Path("/proc/thread-self/net/snmp").read_text().splitlines()
                if line.startswith("Ip:")
            )
            return int(dict(zip(names, values, strict=True))["FragCreates"])

        return self.inside.run(read)

    async def wireguard(self):
        """The state of the host's WireGuard device."""
        return await wireguard_state(self.machines, self.host.directory)

    async def process(self):
        """The wireguard-go of the host."""
        return await Process.adopt(helper_directory(self.host.directory))

    def forwards(self):
        return self.inside.run(netlink.get_sysctl, "ipv4/conf/eth0/forwarding")


def make(host, number, backend, *, address=None, machines=None):
    """Return a host whose backend a function makes, given the host, its namespace and address."""
    inside = Namespace(os.open(f"/run/netns/{host.namespace}", os.O_RDONLY))
    machines = machines or Namespace.create()

    def prepare():
        netlink.set_sysctl("ipv4/ip_forward", 1)
        netlink.set_sysctl("ipv6/conf/all/forwarding", 1)
        with netlink.opened() as link:
            link.change("lo")
            for each in CLUSTERS:
                link.add_address("lo", ip_interface(each[1]))
                link.add_route(each)

    machines.run(prepare)
    own = ip_address(address or host.address)
    made = inside.run(backend, host, machines, own)
    key = wireguard_public_key(wireguard_key(key_file(host)))
    return End(host, inside, machines, made, Peer(own, RANGES[number], key=key))


def host_gw(host, machines, address, *, routes_peers=True):
    return HostGateway(
        host.directory, machines, address=address, pod_cidrs=CLUSTERS, routes_peers=routes_peers
    )


def none(host, machines, address):
    return host_gw(host, machines, address, routes_peers=False)


def vxlan(host, machines, address):
    return Vxlan(host.directory, machines, address=address, vni=7, pod_cidrs=CLUSTERS)


def key_file(host):
    """The file with the private key of a host's WireGuard device."""
    return host.directory.with_name(f"{host.name}.key")


def overlay():
    """In a machine namespace: return the link to other hosts."""
    with netlink.opened() as link:
        return link.links()[OVERLAY_LINK]


async def wireguard_state(machines, directory):
    """Return the state of the WireGuard device in a machine namespace."""
    if machines.run(overlay).alias == "corral wireguard":
        return machines.run(KernelDevice(OVERLAY_LINK).read)
    process = await Process.adopt(helper_directory(directory))
    return UserspaceDevice(process.identity.pid, device_name(directory)).read()


def wireguard(host, machines, address):
    key = wireguard_key(key_file(host))
    return Wireguard(
        host.directory,
        machines,
        address=address,
        pod_cidrs=CLUSTERS,
        key=key,
        public_key=wireguard_public_key(key),
    )


class Pod:
    """The namespace of a pod, whose sockets outlive a move: it gets a new link on another host."""

    def __init__(self, number, *addresses):
        self.addresses = addresses
        self.namespace = Namespace.create()
        self._number = number
        self._links = 0
        self._outside = ""

    def plug(self, end):
        """Link the pod to a host; a former link stays, on which nothing is received any more."""
        self._links += 1
        outside = self._outside = f"pod{self._number}x{self._links}"
        self.namespace.run(self._retire)

        def join():
            with netlink.opened() as link:
                link.add_veth(
                    outside,
                    peer="eth0",
                    peer_namespace=self.namespace.descriptor,
                    mac=MACHINE_MAC,
                    peer_mac=f"02:00:00:00:01:{self._number:02x}",
                )
                link.change(outside)
                for each in self.addresses:
                    link.add_neighbour(outside, each, f"02:00:00:00:01:{self._number:02x}")
                    link.add_route(ip_network(each), link=outside)

        end.machines.run(join)
        self.namespace.run(self._furnish)

    def _retire(self):
        with netlink.opened() as link:
            if not link.index("eth0"):
                return
            for each in link.addresses("eth0"):
                link.delete_address("eth0", each)
            link.change("eth0", up=False, rename=f"old{self._links}")
            link.change(f"old{self._links}")

    def _furnish(self):
        with netlink.opened() as link:
            link.change("lo")
            link.change("eth0")
            for each in self.addresses:
                cluster = next(whole for whole in CLUSTERS if each in whole)
                link.add_address("eth0", ip_interface(each))
                link.add_neighbour("eth0", cluster[1], MACHINE_MAC)
                link.add_route(ip_network(cluster[1]), link="eth0")
                link.add_route(cluster, link="eth0", via=cluster[1])

    def listen(self, address):
        """Return a socket that accepts connections at one of its addresses."""
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        return self.namespace.run(lambda: socket.create_server((str(address), PORT), family=family))

    def connect(self, address, seconds=10):
        """Return a connection to an address."""
        return self.namespace.run(socket.create_connection, (str(address), PORT), seconds)

    def delete_link(self, end):
        """Delete its link on a host, as that of a machine that has ended."""

        def delete():
            with netlink.opened() as link:
                link.delete(self._outside)

        end.machines.run(delete)
