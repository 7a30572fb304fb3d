"""Defaults of HorizontalPodAutoscalers (pkg/apis/autoscaling/v2 of Kubernetes)."""

from typing import Any

from corral.api.object import Document

CPU_UTILIZATION = 80
"""Target of an autoscaler without metrics, in percent of CPU requests."""

_SCALE_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def default(document: Document) -> None:
    """Default the minimum to one replica, the metric to 80 % CPU, and the fields of ``behavior``.

    The stabilization window of scaling down is left out: the controller has its own default.
    """
    spec = document.get("spec")
    if spec is None:
        return
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(CPU_UTILIZATION)]
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = _complete_rules(_SCALE_UP, behavior.get("scaleUp"))
        behavior["scaleDown"] = _complete_rules(_SCALE_DOWN, behavior.get("scaleDown"))


def default_create(document: Document) -> None:
    """Set the status of a new autoscaler."""
    document["status"] = {"desiredReplicas": 0}


def cpu_metric(percent: int) -> Document:
    """Return the metric of a target in percent of CPU requests."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _complete_rules(defaults: Document, rules: Document | None) -> Document:
    result: dict[str, Any] = {
        name: [dict(policy) for policy in value] if isinstance(value, list) else value
        for name, value in defaults.items()
    }
    return result | (rules or {})
