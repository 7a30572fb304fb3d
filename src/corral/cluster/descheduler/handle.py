"""The cluster as a plugin sees it: nodes, and pods that its profile allows to evict.  Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from corral.api.selectors import LabelSelector
from corral.cluster.descheduler.arguments import Names, Selection
from corral.cluster.descheduler.default_evictor import DefaultEvictor
from corral.cluster.descheduler.eviction_outcome import EvictionOutcome
from corral.cluster.descheduler.snapshot import PodInfo, Snapshot
from corral.reconcile.objects import labels_of

Evictions = Iterator[PodInfo | None]
"""Pods to evict, and None after each other pod that was checked: others have their turn then."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The nodes that the policy handles, sorted, and the pods on them."""

    snapshot: Snapshot
    evictor: DefaultEvictor
    nodes: tuple[str, ...]
    now: datetime

    def is_schedulable(self, node: str) -> bool:
        """Return whether a node is not cordoned."""
        spec = self.snapshot.node(node).spec
        return spec is None or not spec.unschedulable

    def evictable(self, nodes: Iterable[str], selection: Selection) -> Evictions:
        """Yield the pods on some nodes that a plugin may evict, and None for each other one."""
        labels = selection.label_selector.parsed()
        for node in nodes:
            yield from self.evictable_on(node, selection.namespaces, labels)

    def evictable_on(
        self, node: str, namespaces: Names, labels: LabelSelector | None = None
    ) -> Evictions:
        """Yield the pods on a node that may be evicted, and None for each other one.

        ``labels`` None selects all.
        """
        for one in self.snapshot.pods_on(node):
            is_evictable = (
                namespaces.has(one.key.namespace)
                and (labels is None or labels.matches(labels_of(one.pod)))
                and self.evictor.allows(one)
                and self.evictor.allows_now(one)
            )
            yield one if is_evictable else None

    def leaves(self, one: PodInfo) -> bool:
        """Return whether an evicted pod would leave its node.

        A migration needs another node; a pod that is replaced may wait for one.
        """
        next_node = self.snapshot.next_node(one)
        return next_node != one.node and bool(
            next_node or one.outcome is EvictionOutcome.REPLACEMENT
        )
