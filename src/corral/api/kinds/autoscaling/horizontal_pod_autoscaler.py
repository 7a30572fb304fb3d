"""HorizontalPodAutoscaler: sets how many of something there are, by how busy they are.

Stored as autoscaling/v2; ``autoscaler_v1`` turns the old form into it and back.
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
_OF_REQUESTS = {"Resource": "resource", "ContainerResource": "containerResource"}


def _reference(document: Document) -> str:
    target = at(document, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(document: Document) -> str:
    """Where each metric is and where it shall be: ``cpu: 2%/75%``, as kubectl's printer has it."""
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
    if name := _OF_REQUESTS.get(metric["type"]):
        target, now = at(metric, name, "target"), at(status, name, "current") or {}
        told = f"{at(metric, name, 'name')}: "
        if target.get("averageValue") is not None:
            return f"{told}{now.get('averageValue') or _UNKNOWN}/{target['averageValue']}"
        share = target.get("averageUtilization")
        wanted = "<auto>" if share is None else f"{share}%"
        return f"{told}{_percent(now.get('averageUtilization'))}/{wanted}"
    if name := _SOURCES.get(metric["type"]):
        target, now = at(metric, name, "target"), at(status, name, "current") or {}
        if target.get("averageValue") is None:
            return f"{now.get('value') or _UNKNOWN}/{target.get('value')}"
        averaged = "" if name == "pods" else " (avg)"
        return f"{now.get('averageValue') or _UNKNOWN}/{target['averageValue']}{averaged}"
    return "<unknown type>"


def _percent(share: int | None) -> str:
    return _UNKNOWN if share is None else f"{share}%"


def _least(document: Document) -> str:
    least: Any = at(document, "spec", "minReplicas")
    return "<unset>" if least is None else str(least)


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
        Column(name="Targets", cell=_targets, description="how busy it is, and may be"),
        Column(name="MinPods", cell=_least, description="how few there may be"),
        Column(
            name="MaxPods", cell=value("spec", "maxReplicas"), description="how many there may be"
        ),
        Column(
            name="Replicas",
            cell=lambda document: at(document, "status", "currentReplicas") or 0,
            description="how many there are",
        ),
        age(),
    ),
    default=default,
    default_create=default_create,
    validate=validate,
)
