"""Pressure: what a node says when its host runs short of something, and the taints that follow.

The names are Kubernetes' (core/v1 NodeConditionType; well_known_taints.go).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from lightkube.models.core_v1 import Node, Taint

MEMORY_PRESSURE: Final = "MemoryPressure"
DISK_PRESSURE: Final = "DiskPressure"
PID_PRESSURE: Final = "PIDPressure"
TAINTS: Final[Mapping[str, str]] = {
    MEMORY_PRESSURE: "node.kubernetes.io/memory-pressure",
    DISK_PRESSURE: "node.kubernetes.io/disk-pressure",
    PID_PRESSURE: "node.kubernetes.io/pid-pressure",
}
"""The taint that keeps pods off a node, by the node's condition."""
NO_SCHEDULE: Final = "NoSchedule"
EVICTED: Final = "Evicted"
"""The reason of a pod, and of its machine, that had to go for its node's sake."""


def pressures(node: Node) -> list[str]:
    """The pressures that a node tells of."""
    told = {each.type: each.status for each in (node.status and node.status.conditions) or ()}
    return [name for name in TAINTS if told.get(name) == "True"]


def pressure_taints(node: Node) -> Iterator[Taint]:
    """The taints that a node's conditions ask for."""
    for name in pressures(node):
        yield Taint(key=TAINTS[name], effect=NO_SCHEDULE)
