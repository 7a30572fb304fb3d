"""The other hosts of a cluster, and their pod ranges, as the Nodes have them.  No I/O."""

import hashlib
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_addresses import (
    by_age,
    internal_ips,
    wireguard_key,
    wireguard_port,
)
from corral.config import WIREGUARD_PORT
from corral.node.network.netlink import Address, Network


@dataclass(frozen=True, slots=True)
class Peer:
    """A host: its address, and the pod ranges of its nodes.

    moved: addresses of other ranges that its machines have brought along; key: the public key of
    its WireGuard device, if it has one; port: that device's UDP port.
    """

    address: Address
    ranges: tuple[Network, ...]
    moved: tuple[Network, ...] = ()
    key: bytes | None = None
    port: int = WIREGUARD_PORT

    @property
    def mac(self) -> str:
        """The hardware address of the peer's device, which follows from its address."""
        return mac_of(self.address)

    def of(self, versions: Container[int]) -> "Peer":
        """Return the host with its ranges and addresses of these IP versions."""
        ranges, moved = (
            tuple(each for each in part if each.version in versions)
            for part in (self.ranges, self.moved)
        )
        return replace(self, ranges=ranges, moved=moved)

    def gateway(self, version: int) -> Address | None:
        """Return the address of its device of an IP version; None if it has no such range."""
        found = (tunnel_address(each) for each in self.ranges if each.version == version)
        return next(found, None)


def mac_of(address: Address, end: str = "") -> str:
    """Return the hardware address of the device of a host: locally administered, unicast.

    end: names another device of the same host.
    """
    digest = hashlib.sha256(address.packed + end.encode()).digest()
    return bytes((0x02, *digest[:5])).hex(":")


def tunnel_address(pods: Network) -> Address:
    """Return the address that the device of a host has in one of its ranges: the first one."""
    return pods.network_address


def peers(nodes: Iterable[Node], own: Address) -> dict[Address, Peer]:
    """Return the other hosts by address; nodes without an address or a range are left out.

    Ranges and keys that another host claims already are left out as well: the first one keeps them.
    """
    found: dict[Address, list[Network]] = {}
    claimed: list[Network] = []
    keys: dict[bytes, Address] = {}
    ports: dict[Address, int] = {}
    for node in sorted(nodes, key=by_age):
        address = internal_address(node)
        if address is None:
            continue
        key, port = encryption(node)
        if key is not None:
            keys.setdefault(key, address)
            ports[address] = port
        for each in pod_ranges(node):
            if any(each.version == other.version and each.overlaps(other) for other in claimed):
                continue
            claimed.append(each)
            if address != own:
                found.setdefault(address, []).append(each)
    key_of = {address: key for key, address in keys.items()}
    return {
        address: Peer(
            address,
            tuple(ranges),
            key=key_of.get(address),
            port=ports.get(address, WIREGUARD_PORT),
        )
        for address, ranges in found.items()
    }


def encryption(node: Node) -> tuple[bytes | None, int]:
    """Return the public key of a Node's WireGuard device, if it has one, and its UDP port."""
    annotations = node.metadata.annotations if node.metadata is not None else None
    return wireguard_key(annotations), wireguard_port(annotations) or WIREGUARD_PORT


def internal_address(node: Node) -> Address | None:
    """Return a Node's InternalIP."""
    for each in internal_ips(node):
        with suppress(ValueError):
            return ip_address(each)
    return None


def pod_ranges(node: Node) -> list[Network]:
    """Return the pod ranges of a Node that can be read."""
    found = []
    for each in (node.spec and node.spec.podCIDRs) or ():
        with suppress(ValueError):
            found.append(ip_network(each))
    return found
