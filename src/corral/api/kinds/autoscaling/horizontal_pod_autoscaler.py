"""HorizontalPodAutoscaler: scales an object by metrics.

Stored as autoscaling/v2; ``v1`` converts the old version from and to it.
"""

from collections.abc import Iterator
from typing import Any

from lightkube.models import autoscaling_v1, autoscaling_v2

from corral.api.kind import Column, Version, at
from corral.api.kinds.autoscaling import v1
from corral.api.kinds.autoscaling.defaults import default, default_create
from corral.api.kinds.autoscaling.validation import validate
from corral.api.kinds.columns import NONE, age, value
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

GROUP = "autoscaling"

_UNKNOWN = "<unknown>"
_MOST_SHOWN = 2
_SOURCES = {"External": "external", "Pods": "pods", "Object": "object"}
_REQUEST_SOURCES = {"Resource": "resource", "ContainerResource": "containerResource"}


def _reference(document: Document) -> str:
    target = at(document, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(document: Document) -> str:
    """Return current and target value of each metric as kubectl prints them: ``cpu: 2%/75%``."""
    shown = list(_each_target(document))
    if len(shown) > _MOST_SHOWN:
        return f"{', '.join(shown[:_MOST_SHOWN])} + {len(shown) - _MOST_SHOWN} more..."
    return ", ".join(shown) or NONE


def _each_target(document: Document) -> Iterator[str]:
    metrics = at(document, "spec", "metrics") or ()
    current = at(document, "status", "currentMetrics") or ()
    for index, metric in enumerate(metrics):
        yield _target(metric, current[index] if index < len(current) else {})


def _target(metric: Document, status: Document) -> str:
    if name := _REQUEST_SOURCES.get(metric["type"]):
        target, now = at(metric, name, "target"), at(status, name, "current") or {}
        prefix = f"{at(metric, name, 'name')}: "
        if target.get("averageValue") is not None:
            return f"{prefix}{now.get('averageValue') or _UNKNOWN}/{target['averageValue']}"
        share = target.get("averageUtilization")
        target_share = "<auto>" if share is None else f"{share}%"
        return f"{prefix}{_percent(now.get('averageUtilization'))}/{target_share}"
    if name := _SOURCES.get(metric["type"]):
        target, now = at(metric, name, "target"), at(status, name, "current") or {}
        if target.get("averageValue") is None:
            return f"{now.get('value') or _UNKNOWN}/{target.get('value')}"
        averaged = "" if name == "pods" else " (avg)"
        return f"{now.get('averageValue') or _UNKNOWN}/{target['averageValue']}{averaged}"
    return "<unknown type>"


def _percent(share: int | None) -> str:
    return _UNKNOWN if share is None else f"{share}%"


def _min_replicas(document: Document) -> str:
    minimum: Any = at(document, "spec", "minReplicas")
    return "<unset>" if minimum is None else str(minimum)


HORIZONTAL_POD_AUTOSCALER = kubernetes_kind(
    group=GROUP,
    plural="horizontalpodautoscalers",
    short=("hpa",),
    categories=("all",),
    versions=(
        Version(name="v2", read=v1.drop_annotations),
        Version(
            name="v1",
            view=autoscaling_v1.HorizontalPodAutoscaler,
            read=v1.read,
            write=v1.write,
        ),
    ),
    view=autoscaling_v2.HorizontalPodAutoscaler,
    columns=(
        Column(name="Reference", cell=_reference, description="what it scales"),
        Column(
            name="Targets", cell=_targets, description="current and target values of its metrics"
        ),
        Column(name="MinPods", cell=_min_replicas, description="minimum of replicas"),
        Column(
            name="MaxPods", cell=value("spec", "maxReplicas"), description="maximum of replicas"
        ),
        Column(
            name="Replicas",
            cell=lambda document: at(document, "status", "currentReplicas") or 0,
            description="current replicas",
        ),
        age(),
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
