"""The network between hosts: a VXLAN device that leads to the pod ranges of other nodes.

It follows flannel's vxlan backend: one device for each host, a route to each range of another host,
and fixed neighbours, so that nothing is learned and nothing is flooded.  The device lies in the
machine namespace, so that all packets pass its packet filter; its outer packets go through the
host's namespace, in which it was born.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Final

from lightkube.models.core_v1 import Node

from corral.api.object import Key
from corral.node.health import Health
from corral.node.network import netlink
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, Netlink, Network, NetworkError
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

PORT: Final = 8472
"""The UDP port of outer packets (flannel's on Linux)."""
HEADER_BYTES: Final = {4: 50, 6: 70}
"""What encapsulation adds to a packet, by the IP version of the hosts' addresses."""
RETRY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Peer:
    """Another host: its address, and the pod ranges of its nodes."""

    address: Address
    ranges: tuple[Network, ...]

    @property
    def mac(self) -> str:
        """The hardware address of the peer's device, which follows from its address."""
        return mac_of(self.address)


def mac_of(address: Address) -> str:
    """Return the hardware address of the device of a host: locally administered, unicast."""
    digest = hashlib.sha256(address.packed).digest()
    return bytes((0x02, *digest[:5])).hex(":")


def tunnel_address(pods: Network) -> Address:
    """Return the address that the device of a host has in one of its ranges: the first one."""
    return pods.network_address


def peers(nodes: Iterable[Node], own: Address) -> dict[Address, Peer]:
    """Return the other hosts by address; nodes without an address or a range are left out.

    Ranges that another host claims already are left out as well: the first one keeps them.
    """
    found: dict[Address, list[Network]] = {}
    claimed: list[Network] = []
    for node in sorted(nodes, key=_created):
        address = internal_address(node)
        if address is None:
            continue
        for each in pod_ranges(node):
            if any(each.version == other.version and each.overlaps(other) for other in claimed):
                continue
            claimed.append(each)
            if address != own:
                found.setdefault(address, []).append(each)
    return {address: Peer(address, tuple(ranges)) for address, ranges in found.items()}


def internal_address(node: Node) -> Address | None:
    """Return a Node's InternalIP."""
    for each in (node.status and node.status.addresses) or ():
        if each.type == "InternalIP":
            with suppress(ValueError):
                return ip_address(each.address)
    return None


def pod_ranges(node: Node) -> list[Network]:
    """Return the pod ranges of a Node that can be read."""
    found = []
    for each in (node.spec and node.spec.podCIDRs) or ():
        with suppress(ValueError):
            found.append(ip_network(each))
    return found


def _created(node: Node) -> tuple[str, str]:
    metadata = node.metadata
    moment = metadata.creationTimestamp if metadata is not None else None
    return (moment.isoformat() if moment else "", key_of(node).name)


class Overlay:
    """The VXLAN device of this host, reconciled with the Nodes of the cluster.

    ``machines`` is the machine namespace, ``address`` this host's on the way to others, ``vni`` the
    number of the cluster's network.  ``on_change`` is called when ``problems`` changes.
    """

    def __init__(
        self,
        context: ControllerContext,
        machines: Namespace,
        *,
        address: Address,
        vni: int,
        pod_cidrs: Sequence[Network],
        on_change: Callable[[], None],
    ) -> None:
        self._queue = WorkQueue[Key]()
        self._nodes = context.informers.of(Node)
        self._machines = machines
        self._host = Namespace.current()
        self._address = address
        self._vni = vni
        self._versions = {each.version for each in pod_cidrs}
        self._health = Health("the network between hosts", on_change)
        self._applied: dict[Address, Peer] = {}
        self._own: list[Network] = []
        self._nodes.handle(self._changed)
        self.run = Controller(
            "overlay", self._reconcile, queue=self._queue, sources=(self._nodes,), workers=1
        ).run

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        return [self._health.problem] if self._health.problem else []

    def resync(self) -> None:
        """Restore the device, its addresses and routes if they were removed."""
        self._applied = {}
        self._queue.add(_EVERYTHING)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change a Node every two minutes, and never what matters here.
        before, after = (
            (internal_address(each), pod_ranges(each)) if each is not None else None
            for each in (old, new)
        )
        if before != after:
            self._queue.add(_EVERYTHING)

    async def _reconcile(self, _key: Key) -> Result | None:
        nodes = list(self._nodes.items())
        desired = peers(nodes, self._address)
        own = [
            each
            for node in nodes
            if internal_address(node) == self._address
            for each in pod_ranges(node)
            if each.version in self._versions
        ]
        if not desired and not self._applied:
            return None  # a host that is alone needs no device
        try:
            await self._host.call(self._ensure_device)
            await self._machines.call(self._apply, own, desired)
        except NetworkError as error:
            self._health.report(error.full_message)
            return Result(requeue_after=RETRY_SECONDS)
        self._applied = desired
        self._health.report("")
        return None

    def _ensure_device(self) -> None:
        """On the host: create the device inside the machine namespace, unless it is there."""
        if self._machines.run(_is_present):
            return
        with netlink.opened() as link:
            lower = next(
                (
                    each
                    for each in link.links().values()
                    if self._address in {one.ip for one in link.addresses(each.name)}
                ),
                None,
            )
            if lower is None:
                raise NetworkError(
                    f"no interface of this host has the address {self._address}",
                    "Choose the address by which other hosts reach this one: corral up --bind, or "
                    "corral join --address.",
                )
            link.add_vxlan(
                OVERLAY_LINK,
                vni=self._vni,
                local=self._address,
                port=PORT,
                mac=mac_of(self._address),
                mtu=lower.mtu - HEADER_BYTES[self._address.version],
                namespace=self._machines.descriptor,
            )

    def _apply(self, own: Sequence[Network], desired: dict[Address, Peer]) -> None:
        """In the machine namespace: sync addresses, routes and neighbours; delete stale ones."""
        with netlink.opened() as link:
            link.change(OVERLAY_LINK)
            addresses = {ip_interface((tunnel_address(each), each.max_prefixlen)) for each in own}
            for present in link.addresses(OVERLAY_LINK) - addresses:
                link.delete_address(OVERLAY_LINK, present)
            for address in addresses:
                link.add_address(OVERLAY_LINK, address)
            routes = {
                each
                for version in self._versions
                for each, device in link.routes(version)
                if device == OVERLAY_LINK
            }
            kept = {each for peer in desired.values() for each in peer.ranges}
            for stale in routes - kept:
                link.delete_route(stale, link=OVERLAY_LINK)
            for peer in desired.values():
                self._add_peer(link, peer)
            for gone in self._applied.values():
                if gone.address not in desired:
                    link.delete_forwarding(OVERLAY_LINK, gone.mac, gone.address)

    def _add_peer(self, link: Netlink, peer: Peer) -> None:
        link.add_forwarding(OVERLAY_LINK, peer.mac, peer.address)
        for each in peer.ranges:
            if each.version in self._versions:
                via = tunnel_address(each)
                link.add_neighbour(OVERLAY_LINK, via, peer.mac)
                link.add_route(each, link=OVERLAY_LINK, via=via, on_link=True)


_EVERYTHING: Final = Key("", "")
"""The one key: all peers are reconciled together, since ranges may move between them."""


def _is_present() -> bool:
    with netlink.opened() as link:
        return bool(link.index(OVERLAY_LINK))
