"""Default limits of a VMI in a namespace whose quota bounds limits.

Such a quota rejects pods whose containers set no limits, so KubeVirt sets them for VMIs that do not
(template.go, doesVMIRequireAutoResourceLimits).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from lightkube.models.core_v1 import Namespace, ResourceQuota

from corral.reconcile.objects import labels_of

RATIO_LABEL: Final = "alpha.kubevirt.io/auto-memory-limits-ratio"
"""Label of a namespace: memory limit of a VMI as a multiple of its request."""
DEFAULT_RATIO: Final = 2.0


class AutoLimits(NamedTuple):
    """CPU limits on or off; memory limit as a multiple of the request, 0 for none."""

    cpu: bool = False
    memory_ratio: float = 0.0


NO_LIMITS: Final = AutoLimits()


def auto_limits(quotas: Iterable[ResourceQuota], namespace: Namespace | None) -> AutoLimits:
    """Return the limits that the quotas of a namespace require."""
    bounded = {name for each in quotas if each.spec is not None for name in each.spec.hard or ()}
    ratio = _ratio(namespace) if "limits.memory" in bounded else 0.0
    return AutoLimits("limits.cpu" in bounded, ratio)


def _ratio(namespace: Namespace | None) -> float:
    """Return the ratio of the label, or the default if it is missing or out of range."""
    value = labels_of(namespace).get(RATIO_LABEL, "") if namespace is not None else ""
    try:
        ratio = float(value)
    except ValueError:
        return DEFAULT_RATIO
    return ratio if 1.0 <= ratio <= 1000.0 else DEFAULT_RATIO
