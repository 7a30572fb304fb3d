"""What an autoscaler does of what it does not say (pkg/apis/autoscaling/v2 of Kubernetes)."""

from typing import Any

from corral.api.object import Document

CPU_UTILIZATION = 80
"""Percent of the cpu requests that an autoscaler without metrics aims at."""

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
    """One replica at least, and 80 % of the cpu; behavior is completed where some is said.

    How long scaling down waits is left unsaid: the controller has its own default for that.
    """
    spec = document.get("spec")
    if spec is None:
        return
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(CPU_UTILIZATION)]
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = _rules(_SCALE_UP, behavior.get("scaleUp"))
        behavior["scaleDown"] = _rules(_SCALE_DOWN, behavior.get("scaleDown"))


def default_create(document: Document) -> None:
    """Before the first look at it nothing is known, and no number is wished for."""
    document["status"] = {"desiredReplicas": 0}


def cpu_metric(percent: int) -> Document:
    """The metric that aims at a share of the cpu requests."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _rules(defaults: Document, said: Document | None) -> Document:
    copied: dict[str, Any] = {
        name: [dict(policy) for policy in value] if isinstance(value, list) else value
        for name, value in defaults.items()
    }
    return copied | (said or {})
