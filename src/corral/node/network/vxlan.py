"""The backend ``vxlan``: a device that leads to the pod ranges of other hosts.

It follows flannel's vxlan backend: one device for each host, a route to each range of another host,
and fixed neighbours, so that nothing is learned and nothing is flooded.  The device lies in the
machine namespace, so that all packets pass its packet filter; its outer packets go through the
host's namespace, in which it was born.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from corral.node.network import host_gateway, netlink
from corral.node.network.host_gateway import link_with
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, Network
from corral.node.network.peers import Peer, mac_of, tunnel_address
from corral.node.network.pod_routes import (
    guarded,
    local_addresses,
    next_hops,
    sync_addresses,
    sync_routes,
)

PORT: Final = 8472
"""The UDP port of outer packets (flannel's on Linux)."""
HEADER_BYTES: Final = {4: 50, 6: 70}
"""Bytes that encapsulation adds to a packet, by the IP version of the hosts' addresses."""


class Vxlan:
    """The VXLAN device of a machine namespace; ``directory`` has the state of its network.

    ``address`` is this host's on the way to others, ``vni`` the number of the cluster's network.
    """

    def __init__(
        self,
        directory: Path,
        machines: Namespace,
        *,
        address: Address,
        vni: int,
        pod_cidrs: Sequence[Network],
    ) -> None:
        self._directory = directory
        self._machines = machines
        self._host = Namespace.current()
        self._address = address
        self._vni = vni
        self._versions = {each.version for each in pod_cidrs}

    async def apply(
        self,
        own: Peer,
        peers: Mapping[Address, Peer],
        gone: Collection[Peer] = (),
        left: Collection[Network] = (),
    ) -> None:
        """Sync the device, its addresses, routes and neighbours.  Raises NetworkError."""
        known = [each.of(self._versions) for each in peers.values()]
        await self._host.call(self._ensure_device)
        await self._machines.call(self._apply, own.of(self._versions), known, gone, left)

    def _ensure_device(self) -> None:
        """On the host: create the device inside the machine namespace, unless it is there."""
        if self._machines.run(_is_present):
            return
        host_gateway.remove_links(self._directory, self._machines)  # of another start
        with netlink.opened() as link:
            lower = link_with(link, self._address)
            link.add_vxlan(
                OVERLAY_LINK,
                vni=self._vni,
                local=self._address,
                port=PORT,
                mac=mac_of(self._address),
                mtu=lower.mtu - HEADER_BYTES[self._address.version],
                namespace=self._machines.descriptor,
            )

    def _apply(
        self,
        own: Peer,
        peers: Sequence[Peer],
        gone: Collection[Peer],
        left: Collection[Network],
    ) -> None:
        """In the machine namespace: sync addresses, routes and neighbours; delete stale ones."""
        with netlink.opened() as link:
            link.change(OVERLAY_LINK)
            sync_addresses(link, own.ranges)
            for peer in peers:
                link.add_forwarding(OVERLAY_LINK, peer.mac, peer.address)
                for each in peer.ranges:
                    link.add_neighbour(OVERLAY_LINK, tunnel_address(each), peer.mac)
            local = local_addresses(link, self._versions, left)
            routes = next_hops(peers, local)
            sync_routes(link, routes, guards=guarded(own), left=left, versions=self._versions)
            for peer in gone:
                link.delete_forwarding(OVERLAY_LINK, peer.mac, peer.address)


def _is_present() -> bool:
    """In the machine namespace: report whether the device is there, and no other backend's link."""
    with netlink.opened() as link:
        found = link.links().get(OVERLAY_LINK)
        return found is not None and not found.alias  # a VXLAN device has none
