"""Node pressure: conditions of nodes that are short of resources, and their taints.

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
"""The taint of each condition, which keeps pods off the node."""
NO_SCHEDULE: Final = "NoSchedule"
EVICTED: Final = "Evicted"
"""The reason of a pod, and of its VMI, that was evicted under node pressure."""


def pressures(node: Node) -> list[str]:
    """Return the pressure conditions of a node that are true."""
    statuses = {each.type: each.status for each in (node.status and node.status.conditions) or ()}
    return [name for name in TAINTS if statuses.get(name) == "True"]


def pressure_taints(node: Node) -> Iterator[Taint]:
    """Yield the taints for a node's pressure conditions."""
    for name in pressures(node):
        yield Taint(key=TAINTS[name], effect=NO_SCHEDULE)
