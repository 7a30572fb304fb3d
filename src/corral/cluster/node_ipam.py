"""Gives each node a range of the pods' addresses: Kubernetes' node IPAM.

A range is written into the node's ``spec.podCIDRs`` and stays with it for its life, or until all
pods get another range; nothing else remembers it.  No two nodes have a common address.
"""

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from lightkube.models.core_v1 import Node

from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

Network = IPv4Network | IPv6Network

COMPONENT = "cidrAllocator"
FEW = 16
"""So many nodes get a sixteenth of the addresses each; where there are more, a 256th."""
SMALLEST = {4: 28, 6: 120}
"""Prefix length, by IP version, of the smallest range that is of use to a node."""
IPV6_PREFIX = 64
"""A node's range of IPv6 (kube-controller-manager's --node-cidr-mask-size-ipv6)."""


def controller(nodes: int, *pod_cidrs: Network) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the controller of nodes' ranges.

    ``nodes``: how many there will be about; ``pod_cidrs``: the range of all pods, one a family.
    """

    def make(context: ControllerContext) -> Controller[Key]:
        loop = NodeRanges(context, nodes, pod_cidrs)
        # One worker: two at once would find the same range free.
        return Controller(
            "node-ranges", loop.reconcile, queue=loop.queue, sources=(loop.nodes,), workers=1
        )

    return make


class NodeRanges:
    """The nodes, and the ranges that are theirs."""

    def __init__(
        self, context: ControllerContext, count: int, pod_cidrs: Sequence[Network]
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._count = count
        self._pod_cidrs = pod_cidrs
        self._given: dict[str, list[Network]] = {}
        """By node: what was asked to be written, which the cache may not show yet."""
        self.nodes.handle(self._changed)

    async def reconcile(self, key: Key) -> None:
        """Give a node its ranges, if it has none."""
        node = self.nodes.get(key)
        if node is None or ranges(node):
            return
        given = self._given.get(key.name)
        if given is None:
            taken = [each for other in self.nodes.items() for each in ranges(other)]
            taken += [each for own in self._given.values() for each in own]
            found = [
                free_range(whole, prefix_for(whole, self._count), taken)
                for whole in self._pod_cidrs
            ]
            given = [each for each in found if each is not None]
            if len(given) < len(found):
                text = f"Node {key.name} status is now: CIDRNotAvailable"
                self._recorder.event(node, "Normal", "CIDRNotAvailable", text)
            if not given:
                return
            self._given[key.name] = given
        words = [str(each) for each in given]
        await self._client.patch(Node, key, {"spec": {"podCIDR": words[0], "podCIDRs": words}})

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            if not ranges(new):
                self.queue.add(key_of(new))
            return
        assert old is not None
        self._given.pop(key_of(old).name, None)
        for other in self.nodes.items():  # one of them may have waited for this range
            if not ranges(other):
                self.queue.add(key_of(other))


async def take_back(client: Client, pod_cidrs: Sequence[Network]) -> None:
    """Leave no node a range that lies in none of these: the range of all pods was changed.

    Only while no machine has an address.  Nodes then get new ranges.
    """
    for node in (await client.list(Node)).items:
        if not all(any(_within(each, whole) for whole in pod_cidrs) for each in ranges(node)):
            await client.patch(Node, key_of(node), {"spec": {"podCIDR": None, "podCIDRs": None}})


def ranges(node: Node) -> list[Network]:
    """The ranges that a node has; what is unreadable is none."""
    spec = node.spec
    if spec is None:
        return []
    found = []
    for word in spec.podCIDRs or ([spec.podCIDR] if spec.podCIDR else []):
        try:
            found.append(ip_network(word))
        except ValueError:
            continue
    return found


def prefix_for(whole: Network, nodes: int) -> int:
    """How long the prefix of a node's range is, where there are so many nodes.

    A single node gets half of all addresses: the other half is for nodes that come when the
    machine is renamed or divided differently, while this one still has machines.
    """
    if whole.version == 6:
        prefix = IPV6_PREFIX
    elif nodes == 1:
        prefix = whole.prefixlen + 1
    else:
        prefix = whole.prefixlen + (4 if nodes <= FEW else 8)
    shortest = min(whole.prefixlen + 1, whole.max_prefixlen)
    return max(shortest, min(prefix, SMALLEST[whole.version]))


def free_range(whole: Network, prefix: int, taken: Iterable[Network]) -> Network | None:
    """The lowest range of this prefix length that nobody has; a smaller one if there is none."""
    ours = [each for each in taken if each.version == whole.version]
    for length in range(prefix, max(prefix, SMALLEST[whole.version]) + 1):
        size = 1 << (whole.max_prefixlen - length)
        at = int(whole.network_address)
        end = at + whole.num_addresses
        while at < end:
            candidate = type(whole)((at, length))
            blocking = [each for each in ours if _overlap(each, candidate)]
            if not blocking:
                return candidate
            # Go on behind what is in the way, at the next multiple of the size.
            behind = max(int(each.broadcast_address) for each in blocking) + 1
            at = max(at + size, -(-behind // size) * size)
    return None


def _within(part: Network, whole: Network) -> bool:
    return part.network_address in whole and part.prefixlen >= whole.prefixlen


def _overlap(one: Network, other: Network) -> bool:
    return one.network_address in other or other.network_address in one
