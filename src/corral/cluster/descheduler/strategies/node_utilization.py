"""LowNodeUtilization and HighNodeUtilization: evictions by the share of a node that is requested.

A node is underutilized while no resource is above ``thresholds``, and overutilized once one is
above ``targetThresholds``.  Where the descheduler hopes for a good place, a pod is evicted only if
the scheduler will put it on a node that does not become overutilized (Low), or that is fuller than
the one it leaves (High): so the next cycle does not evict it again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.cluster.descheduler.arguments import (
    BASIC,
    ONLY_THRESHOLDING_RESOURCES,
    HighNodeUtilizationArgs,
    LowNodeUtilizationArgs,
    Names,
    Thresholds,
)
from corral.cluster.descheduler.default_evictor import PREFER_NO_EVICTION, priority_of
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import PodInfo
from corral.reconcile.objects import annotations_of

Percentages = Mapping[str, float]
_FULL: Final = 100.0
_QOS: Final = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def relieve_overutilized(args: LowNodeUtilizationArgs, handle: Handle) -> Evictions:
    """Yield pods of overutilized nodes until these are at their target (LowNodeUtilization)."""
    levels = _levels(args, handle)
    under = [name for name in handle.nodes if handle.is_schedulable(name) and levels.is_under(name)]
    over = [name for name in handle.nodes if name not in under and levels.is_over(name)]
    if not args.number_of_nodes < len(under) < len(handle.nodes):
        return
    sources = _Sources(handle, levels, args.evictable_namespaces, args.eviction_limits.node)
    for name in sorted(over, key=levels.total, reverse=True):

        def is_done(name: str = name) -> bool:
            return not (levels.is_over(name) and levels.have_room(under))

        def is_good(one: PodInfo, next_node: str, name: str = name) -> bool:
            return next_node not in ("", name) and not levels.is_over(next_node, one)

        yield from sources.evictions(name, is_done, is_good)


def empty_underutilized(args: HighNodeUtilizationArgs, handle: Handle) -> Evictions:
    """Yield pods of underutilized nodes, the emptiest first (HighNodeUtilization)."""
    resources = args.thresholds.keys()
    levels = _Levels(handle, args.thresholds, dict.fromkeys(resources, _FULL))
    under = [name for name in handle.nodes if levels.is_under(name)]
    others = [name for name in handle.nodes if name not in under and handle.is_schedulable(name)]
    if not (args.number_of_nodes < len(under) < len(handle.nodes) and others):
        return
    only = resources if ONLY_THRESHOLDING_RESOURCES in args.eviction_modes else ()
    sources = _Sources(handle, levels, args.evictable_namespaces, only=only)
    for name in sorted(under, key=levels.total):

        def is_done() -> bool:
            return not levels.have_room(others)

        def is_good(_one: PodInfo, next_node: str, name: str = name) -> bool:
            if next_node in ("", name):
                return False
            return next_node not in under or levels.total(next_node) > levels.total(name)

        yield from sources.evictions(name, is_done, is_good)


def _levels(args: LowNodeUtilizationArgs, handle: Handle) -> "_Levels":
    """Return the levels of LowNodeUtilization; deviations are counted from the present mean."""
    levels = _Levels(handle, args.thresholds, args.target_thresholds)
    if not args.use_deviation_thresholds:
        return levels
    shares = [levels.shares(name) for name in handle.nodes]
    mean = {
        resource: sum(each[resource] for each in shares) / len(shares)
        for resource in args.thresholds
    }
    return _Levels(
        handle,
        {name: max(0.0, mean[name] - args.thresholds[name]) for name in mean},
        {name: min(_FULL, mean[name] + args.target_thresholds[name]) for name in mean},
    )


@dataclass(frozen=True, slots=True)
class _Levels:
    """The thresholds of a plugin, and where nodes are now."""

    handle: Handle
    low: Thresholds
    target: Thresholds

    def shares(self, node: str, one: PodInfo | None = None) -> Percentages:
        """Return the percentages of a node that are requested, those of a further pod included."""
        snapshot, more = self.handle.snapshot, one.requested if one is not None else {}
        used = snapshot.used(node)
        return {
            name: _percentage(
                used.get(name, 0) + more.get(name, 0), snapshot.allocatable(node, name)
            )
            for name in {*BASIC, *self.low}
        }

    def total(self, node: str) -> float:
        """Return the sum of a node's percentages, to sort by."""
        return sum(self.shares(node).values())

    def is_under(self, node: str) -> bool:
        shares = self.shares(node)
        return all(shares[name] <= level for name, level in self.low.items())

    def is_over(self, node: str, one: PodInfo | None = None) -> bool:
        """Return whether a node is overutilized, or would be with a further pod."""
        shares = self.shares(node, one)
        return any(shares[name] > level for name, level in self.target.items())

    def have_room(self, nodes: Sequence[str]) -> bool:
        """Return whether some of each resource is left on the nodes, up to the target."""
        return all(self._room(nodes, name) > 0 for name in {*BASIC, *self.low})

    def _room(self, nodes: Iterable[str], resource: str) -> float:
        snapshot, share = self.handle.snapshot, self.target.get(resource, _FULL) / 100
        return sum(
            share * snapshot.allocatable(name, resource) - snapshot.used(name).get(resource, 0)
            for name in nodes
        )


@dataclass(frozen=True, slots=True)
class _Sources:
    """Nodes to evict from.

    limit: the most evictions from each node.
    only: resources of which a pod must request one; empty: none.
    """

    handle: Handle
    levels: _Levels
    namespaces: Names
    limit: int | None = None
    only: Iterable[str] = ()

    def evictions(
        self, node: str, is_done: Callable[[], bool], is_good: Callable[[PodInfo, str], bool]
    ) -> Evictions:
        """Yield pods of a node, the least important first, while they land well."""
        found = []
        for one in self.handle.evictable_on(node, self.namespaces):
            if one is not None and self._counts(one):
                found.append(one)
            yield None
        evicted = 0
        for one in sorted(found, key=_importance):
            if is_done() or (self.limit is not None and evicted >= self.limit):
                return
            yield one if is_good(one, self.handle.snapshot.next_node(one)) else None
            evicted += not one.stays

    def _counts(self, one: PodInfo) -> bool:
        return not self.only or any(one.requested.get(name) for name in self.only)


def _importance(one: PodInfo) -> tuple[int, int, bool]:
    """Return the order of evictions: by priority, then by quality of service."""
    quality = (one.pod.status and one.pod.status.qosClass) or ""
    return priority_of(one), _QOS.get(quality, 0), PREFER_NO_EVICTION in annotations_of(one.pod)


def _percentage(used: int, allocatable: int) -> float:
    """Return the used share of a resource; 0 of what a node does not have."""
    return 100 * used / allocatable if allocatable > 0 else 0.0
