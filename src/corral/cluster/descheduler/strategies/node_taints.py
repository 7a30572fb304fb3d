"""RemovePodsViolatingNodeTaints: pods that do not tolerate a taint of their node."""

from collections.abc import Iterable

from lightkube.models.core_v1 import Taint

from corral.api import node_fit
from corral.api.kinds.core.node_pressure import NO_SCHEDULE
from corral.api.kinds.core.node_taints import PREFER_NO_SCHEDULE
from corral.cluster.descheduler.arguments import NodeTaintsArgs
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import PodInfo


def evictions(args: NodeTaintsArgs, handle: Handle) -> Evictions:
    """Yield pods that do not tolerate a taint, unless they would come back."""
    for name in handle.nodes:
        node = handle.snapshot.node(name)
        taints = [each for each in node_fit.taints_of(node) if counts(args, each)]
        if not taints:
            continue
        for one in handle.evictable([name], args):
            yield one if one is not None and _goes(handle, one, taints) else None


def _goes(handle: Handle, one: PodInfo, taints: Iterable[Taint]) -> bool:
    tolerated = (node_fit.tolerates(one.next_pod, each) for each in taints)
    return not all(tolerated) and handle.leaves(one)


def counts(args: NodeTaintsArgs, taint: Taint) -> bool:
    """Return whether a taint counts, by its effect, its key, or its key and value."""
    effects = (NO_SCHEDULE, *((PREFER_NO_SCHEDULE,) if args.include_prefer_no_schedule else ()))
    names = {taint.key, *((f"{taint.key}={taint.value}",) if taint.value else ())}
    if taint.effect not in effects or not names.isdisjoint(args.excluded_taints):
        return False
    return not args.included_taints or not names.isdisjoint(args.included_taints)
