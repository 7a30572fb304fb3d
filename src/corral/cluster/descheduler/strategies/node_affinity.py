"""RemovePodsViolatingNodeAffinity: pods whose node does not match, or less than another."""

from lightkube.models.core_v1 import Pod

from corral.api import node_fit
from corral.cluster.descheduler.arguments import REQUIRED, NodeAffinityArgs
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import PodInfo


def evictions(args: NodeAffinityArgs, handle: Handle) -> Evictions:
    """Yield pods that fit on a better node, and will be there."""
    for kind in args.node_affinity_type:
        is_wrong = _is_refused if kind == REQUIRED else _is_better
        for one in handle.evictable(handle.nodes, args):
            goes = (
                one is not None and has_node_affinity(one.next_pod, kind) and is_wrong(handle, one)
            )
            yield one if goes else None


def has_node_affinity(pod: Pod, kind: str) -> bool:
    """Return whether a pod has node affinity of a type; a nodeSelector counts as required."""
    affinity = pod.spec and pod.spec.affinity and pod.spec.affinity.nodeAffinity
    if kind == REQUIRED and pod.spec and pod.spec.nodeSelector:
        return True
    return bool(affinity and getattr(affinity, kind))


def _is_refused(handle: Handle, one: PodInfo) -> bool:
    """Return whether a pod's node does not match, and another one does."""
    node = handle.snapshot.node(one.node)
    if node_fit.matches_affinity(one.next_pod, node):
        return False
    return handle.snapshot.fits_elsewhere(one, handle.nodes) and handle.leaves(one)


def _is_better(handle: Handle, one: PodInfo) -> bool:
    """Return whether a pod will be on a node that it prefers to its own."""
    next_node = handle.snapshot.next_node(one)
    if next_node in ("", one.node):
        return False
    pod, snapshot = one.next_pod, handle.snapshot
    present = node_fit.preference(pod, snapshot.node(one.node))
    return node_fit.preference(pod, snapshot.node(next_node)) > present
