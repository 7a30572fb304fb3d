"""RemoveDuplicates: several VMIs of one owner on a node, while others have fewer.

The descheduler compares the owners of pods, which are VMIs here, each with one pod: so the topmost
owner counts, a replica set, a pool or a VirtualMachine.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable
from math import ceil

from corral.api import node_fit
from corral.cluster.descheduler.arguments import RemoveDuplicatesArgs
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import OwnerId, PodInfo

Group = tuple[OwnerId, tuple[str, ...]]
"""An owner, and the images of its pods, sorted."""
Groups = dict[Group, dict[str, list[PodInfo]]]
"""Pods by group and node."""


def evictions(args: RemoveDuplicatesArgs, handle: Handle) -> Evictions:
    """Yield pods beyond a node's share, if they will be where there are fewer."""
    groups = yield from _grouped(args, handle)
    for group, by_node in sorted(groups.items()):
        nodes = _feasible(handle, (one for pods in by_node.values() for one in pods))
        if len(nodes) < 2:
            continue
        share = ceil(sum(map(len, by_node.values())) / len(nodes))
        for pods in by_node.values():
            for one in pods[share:]:
                next_node = handle.snapshot.next_node(one)
                goes = next_node not in ("", one.node) and _count(handle, group, next_node) < share
                yield one if goes else None


def _grouped(args: RemoveDuplicatesArgs, handle: Handle) -> Generator[None, None, Groups]:
    """Return the pods that may be evicted; yields between them."""
    groups: Groups = defaultdict(lambda: defaultdict(list))
    for name in handle.nodes:
        for one in handle.evictable_on(name, args.namespaces):
            yield
            if one is None or not one.owner_kinds.isdisjoint(args.exclude_owner_kinds):
                continue
            if (group := _group(one)) is not None:
                groups[group][name].append(one)
    return groups


def _group(one: PodInfo) -> Group | None:
    if one.owner_id is None or one.pod.spec is None:
        return None
    images = sorted(each.image or "" for each in one.pod.spec.containers)
    return one.owner_id, tuple(images)


def _feasible(handle: Handle, pods: Iterable[PodInfo]) -> set[str]:
    """Return the nodes whose taints and labels allow one of the pods."""
    found: set[str] = set()
    seen = []
    for one in pods:
        spec = one.next_pod.spec
        assert spec is not None
        terms = (spec.tolerations, spec.nodeSelector, spec.affinity)
        if terms in seen:
            continue
        seen.append(terms)
        nodes = {name for name in handle.nodes if _may_be_on(handle, one, name)}
        if len(nodes) > 1:
            found |= nodes
    return found


def _may_be_on(handle: Handle, one: PodInfo, name: str) -> bool:
    pod, node = one.next_pod, handle.snapshot.node(name)
    untolerated = node_fit.untolerated(pod, node_fit.taints_of(node))
    return untolerated is None and node_fit.matches_affinity(pod, node)


def _count(handle: Handle, group: Group, node: str) -> int:
    """Return how many pods of a group are on a node, or will be."""
    return sum(_group(one) == group for one in handle.snapshot.pods_on(node))
