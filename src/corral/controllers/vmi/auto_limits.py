"""Limits that a machine gets without asking, since a quota of its namespace wants to know them.

A pod whose containers name no limit is refused where a quota is about limits.  KubeVirt names them
then for machines that do not (template.go, doesVMIRequireAutoResourceLimits).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from lightkube.models.core_v1 import Namespace, ResourceQuota

from corral.reconcile.objects import labels_of

RATIO_LABEL: Final = "alpha.kubevirt.io/auto-memory-limits-ratio"
"""Of a namespace: how many times its request a machine may take of memory."""
DEFAULT_RATIO: Final = 2.0


class AutoLimits(NamedTuple):
    """What to limit: cpu, and memory to so many times its request (0: it is not limited)."""

    cpu: bool = False
    memory_ratio: float = 0.0


NO_LIMITS: Final = AutoLimits()


def auto_limits(quotas: Iterable[ResourceQuota], namespace: Namespace | None) -> AutoLimits:
    """What the quotas of a namespace want limits of."""
    bounded = {name for each in quotas if each.spec is not None for name in each.spec.hard or ()}
    ratio = _ratio(namespace) if "limits.memory" in bounded else 0.0
    return AutoLimits("limits.cpu" in bounded, ratio)


def _ratio(namespace: Namespace | None) -> float:
    """What the label says, where it says something that makes sense."""
    said = labels_of(namespace).get(RATIO_LABEL, "") if namespace is not None else ""
    try:
        ratio = float(said)
    except ValueError:
        return DEFAULT_RATIO
    return ratio if 1.0 <= ratio <= 1000.0 else DEFAULT_RATIO
