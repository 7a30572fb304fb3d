"""Node IPAM controller: allocates a pod CIDR to each node.

A CIDR is stored in the node's ``spec.podCIDRs`` only, and stays until the node is deleted or the
cluster CIDR changes. CIDRs of nodes do not overlap.  The CIDR of a deleted node is not allocated
again while machines have addresses of it that have migrated to other nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from lightkube.models.core_v1 import Node, Pod

from corral.api.kinds.core.pod_addresses import pod_addresses
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.object import Key
from corral.client.client import Client
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

Network = IPv4Network | IPv6Network

COMPONENT = "cidrAllocator"
MAX_LARGE_NODES = 16
"""Up to this many nodes get a sixteenth of the addresses each, more get a 256th."""
MAX_PREFIX = {4: 28, 6: 120}
"""Prefix length, by IP version, of the smallest useful range."""
IPV6_PREFIX = 64
"""Prefix of a node's IPv6 range (kube-controller-manager's --node-cidr-mask-size-ipv6)."""


def controller(nodes: int, *pod_cidrs: Network) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller.

    ``nodes``: expected number of nodes; ``pod_cidrs``: the cluster CIDR of each IP family.
    """

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = NodeRanges(context, nodes, pod_cidrs)
        # One worker: two would allocate the same range.
        sources = (loop.nodes, loop.moved)
        return Controller(
            "node-ranges", loop.reconcile, queue=loop.queue, sources=sources, workers=1
        )

    return factory


class NodeRanges:
    """Cache and state of the controller."""

    def __init__(
        self, context: ControllerContext, count: int, pod_cidrs: Sequence[Network]
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self.moved = context.informers.of(Pod, labels=MIGRATION_UID)
        """Pods that VMIs have migrated to, with addresses of other nodes' ranges."""
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._count = count
        self._pod_cidrs = pod_cidrs
        self._allocated: dict[str, list[Network]] = {}
        """Allocated ranges by node, which the cache may not show yet."""
        self.nodes.handle(self._changed)
        self.moved.handle(self._pod_changed)

    async def reconcile(self, key: Key) -> None:
        """Allocate ranges to a node without any."""
        node = self.nodes.get(key)
        if node is None or ranges(node):
            return
        allocated = self._allocated.get(key.name)
        if allocated is None:
            used = [each for other in self.nodes.items() for each in ranges(other)]
            used += [each for own in self._allocated.values() for each in own]
            kept = [ip_network(each) for pod in self.moved.items() for each in pod_addresses(pod)]
            found = [
                free_range(
                    cluster_cidr, prefix_for(cluster_cidr, self._count, used), [*used, *kept]
                )
                for cluster_cidr in self._pod_cidrs
            ]
            allocated = [each for each in found if each is not None]
            if len(allocated) < len(found):
                text = f"Node {key.name} status is now: CIDRNotAvailable"
                self._recorder.event(node, "Normal", "CIDRNotAvailable", text)
            if not allocated:
                return
            self._allocated[key.name] = allocated
        cidrs = [str(each) for each in allocated]
        await self._client.patch(Node, key, {"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            if not ranges(new):
                self.queue.add(key_of(new))
            return
        assert old is not None
        self._allocated.pop(key_of(old).name, None)
        self._retry()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and not pod_addresses(new):
            self._retry()

    def _retry(self) -> None:
        """Enqueue the nodes without a range: one of them may have waited for a free one."""
        for node in self.nodes.items():
            if not ranges(node):
                self.queue.add(key_of(node))


async def release_outside(client: Client, pod_cidrs: Sequence[Network]) -> None:
    """Remove ranges outside the cluster CIDRs from all nodes, after these were changed.

    Only while no VMI has an address. The controller allocates new ranges afterwards.
    """
    for node in (await client.list(Node)).items:
        if not all(
            any(_within(each, cluster_cidr) for cluster_cidr in pod_cidrs) for each in ranges(node)
        ):
            await client.patch(Node, key_of(node), {"spec": {"podCIDR": None, "podCIDRs": None}})


def ranges(node: Node) -> list[Network]:
    """Return the ranges of a node; invalid ones are ignored."""
    spec = node.spec
    if spec is None:
        return []
    found = []
    for cidr in spec.podCIDRs or ([spec.podCIDR] if spec.podCIDR else []):
        try:
            found.append(ip_network(cidr))
        except ValueError:
            continue
    return found


def prefix_for(cluster_cidr: Network, nodes: int, used: Sequence[Network] = ()) -> int:
    """Return the prefix length of a node's range for a number of nodes.

    A single node gets half of the addresses.  The other half is for nodes that join: each gets a
    256th, as from kube-controller-manager (--node-cidr-mask-size 24 of a /16).
    """
    if cluster_cidr.version == 6:
        prefix = IPV6_PREFIX
    elif nodes == 1:
        joined = any(each.version == cluster_cidr.version for each in used)
        prefix = cluster_cidr.prefixlen + (8 if joined else 1)
    else:
        prefix = cluster_cidr.prefixlen + (4 if nodes <= MAX_LARGE_NODES else 8)
    shortest = min(cluster_cidr.prefixlen + 1, cluster_cidr.max_prefixlen)
    return max(shortest, min(prefix, MAX_PREFIX[cluster_cidr.version]))


def free_range(cluster_cidr: Network, prefix: int, used: Iterable[Network]) -> Network | None:
    """Return the lowest free range of this prefix length, or a smaller one if there is none."""
    ours = [each for each in used if each.version == cluster_cidr.version]
    for length in range(prefix, max(prefix, MAX_PREFIX[cluster_cidr.version]) + 1):
        size = 1 << (cluster_cidr.max_prefixlen - length)
        at = int(cluster_cidr.network_address)
        end = at + cluster_cidr.num_addresses
        while at < end:
            candidate = type(cluster_cidr)((at, length))
            blocking = [each for each in ours if _overlap(each, candidate)]
            if not blocking:
                return candidate
            # Continue behind the overlapping ranges, at the next multiple of the size.
            next_free = max(int(each.broadcast_address) for each in blocking) + 1
            at = max(at + size, -(-next_free // size) * size)
    return None


def _within(part: Network, cluster_cidr: Network) -> bool:
    return part.network_address in cluster_cidr and part.prefixlen >= cluster_cidr.prefixlen


def _overlap(one: Network, other: Network) -> bool:
    return one.network_address in other or other.network_address in one
