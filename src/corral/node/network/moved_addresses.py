"""Addresses that have moved with their machine to another node, and the node of each.  No I/O.

The pod that a VMI migrates to shows the address in ``status.podIPs`` once the guest is handed over.
NodeRestriction lets a node write an address of another node's range only for a pod of the VMI that
has it already, so no node draws the packets of others to itself.  The host that a guest leaves
knows of it earlier: ``lead``.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from lightkube.models.core_v1 import Node, Pod

from corral.api.kinds.core.pod_addresses import pod_addresses
from corral.api.object import Key
from corral.api.volume_binding import is_finished
from corral.node.network.netlink import Address, Network
from corral.node.network.peers import internal_address, pod_ranges
from corral.reconcile.objects import key_of


class _Led(NamedTuple):
    """The node that an address leads to, and the pod that is to show it there."""

    node: str
    pod: Key


class MovedAddresses:
    """The node of each address that a VMI has taken along when it migrated."""

    def __init__(self) -> None:
        self._led: dict[Address, _Led] = {}

    def led(self, pods: Iterable[Pod]) -> dict[Address, str]:
        """Return the nodes that ``lead`` has set, by address, until their pods show it or end."""
        silent = {key_of(each) for each in pods if not (pod_addresses(each) or is_finished(each))}
        return {address: led.node for address, led in self._led.items() if led.pod in silent}

    def lead(self, addresses: Iterable[Address], node: str, pod: Key) -> None:
        """Set the node of addresses whose machine leaves, until its new pod shows them."""
        self._led.update(dict.fromkeys(addresses, _Led(node, pod)))

    def forget(self, addresses: Iterable[Address]) -> bool:
        """Undo ``lead``; return whether there was anything to undo."""
        led = [each for each in addresses if each in self._led]
        for each in led:
            del self._led[each]
        return bool(led)

    def nodes(self, pods: Iterable[Pod]) -> dict[Address, str]:
        """Return the node of each address, given the pods that VMIs have migrated to.

        A pod that its guest is leaving shows the address until it ends: the latest pod counts.
        """
        found: dict[Address, str] = {}
        for pod in (by_age := sorted(pods, key=_age)):
            found.update(dict.fromkeys(pod_addresses(pod), node_name(pod)))
        return found | self.led(by_age)


def by_host(
    addresses: Mapping[Address, str], nodes: Iterable[Node], pod_cidrs: Sequence[Network]
) -> dict[Address, tuple[Network, ...]]:
    """Return the addresses that lie outside the ranges of their node's host, by host address."""
    host_of: dict[str, Address] = {}
    ranges: dict[Address, list[Network]] = {}
    for node in nodes:
        if (host := internal_address(node)) is not None:
            host_of[key_of(node).name] = host
            ranges.setdefault(host, []).extend(pod_ranges(node))
    found: dict[Address, list[Network]] = {}
    for address, name in addresses.items():
        at = host_of.get(name)
        if at is not None and _is_in(address, pod_cidrs) and not _is_in(address, ranges[at]):
            found.setdefault(at, []).append(ip_network(address))
    return {host: tuple(each) for host, each in found.items()}


def node_name(pod: Pod) -> str:
    """Return the node that a pod is bound to, or an empty string."""
    return (pod.spec and pod.spec.nodeName) or ""


def _is_in(address: Address, ranges: Iterable[Network]) -> bool:
    return any(address in each for each in ranges)


def _age(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creationTimestamp if pod.metadata is not None else None
    return (created.isoformat() if created else "", key_of(pod).name)
