"""Plugins of the descheduler: which pods to evict, and in which order.  Pure.

Each yields a pod to evict, and None after each other pod that it has checked: a cycle lets the rest
of the process have its turn then.  A pod that was evicted does not stay any more.  To add one:
write its module, its arguments in ``arguments``, and its row in STRATEGIES.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.cluster.descheduler import arguments
from corral.cluster.descheduler.arguments import Arguments
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.strategies import (
    duplicates,
    node_affinity,
    node_taints,
    node_utilization,
    pod_life_time,
    topology_spread,
)

DESCHEDULE: Final = "deschedule"
"""The extension point of plugins that check each pod by itself; they run first."""
BALANCE: Final = "balance"
"""The extension point of plugins that compare nodes or groups of pods."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A plugin: its extension point, the type of its arguments, and its evictions."""

    point: str
    arguments: type[Arguments]
    evictions: Callable[[Any, Handle], Evictions]


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "LowNodeUtilization": Strategy(
        BALANCE, arguments.LowNodeUtilizationArgs, node_utilization.relieve_overutilized
    ),
    "HighNodeUtilization": Strategy(
        BALANCE, arguments.HighNodeUtilizationArgs, node_utilization.empty_underutilized
    ),
    "RemoveDuplicates": Strategy(BALANCE, arguments.RemoveDuplicatesArgs, duplicates.evictions),
    "RemovePodsViolatingTopologySpreadConstraint": Strategy(
        BALANCE, arguments.TopologySpreadArgs, topology_spread.evictions
    ),
    "RemovePodsViolatingNodeTaints": Strategy(
        DESCHEDULE, arguments.NodeTaintsArgs, node_taints.evictions
    ),
    "RemovePodsViolatingNodeAffinity": Strategy(
        DESCHEDULE, arguments.NodeAffinityArgs, node_affinity.evictions
    ),
    "PodLifeTime": Strategy(DESCHEDULE, arguments.PodLifeTimeArgs, pod_life_time.evictions),
}
