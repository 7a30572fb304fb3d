"""Taints that a node's state gives it, and what tolerates a taint.

The names are Kubernetes' (core/v1 well_known_taints.go; nodelifecycle's taint based eviction).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from lightkube.models.core_v1 import Node, Taint, Toleration

from corral.api.kinds.core.node_pressure import NO_SCHEDULE, TAINTS, pressure_taints

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
CONDITION_TAINTS: Final = frozenset({NOT_READY, UNREACHABLE, *TAINTS.values()})
"""Taints that the conditions of a node set and remove."""
_BY_READY: Final[Mapping[str, str]] = {"False": NOT_READY, "Unknown": UNREACHABLE}


def condition_taints(node: Node) -> Iterator[Taint]:
    """Yield the taints for a node's conditions: Ready, and those of pressure."""
    status = ready_status(node)
    if status in _BY_READY:
        for effect in (NO_SCHEDULE, NO_EXECUTE):
            yield Taint(key=_BY_READY[status], effect=effect)
    yield from pressure_taints(node)


def ready_status(node: Node) -> str:
    """Return the status of a node's condition Ready; empty without one."""
    conditions = (node.status and node.status.conditions) or ()
    return next((each.status for each in conditions if each.type == "Ready"), "")


def taints(node: Node, effect: str) -> list[Taint]:
    """Return the taints of a node that have an effect."""
    return [each for each in (node.spec and node.spec.taints) or () if each.effect == effect]


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Report whether a toleration tolerates a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")
