"""autoscaling/v1: the old form of autoscalers, which knows one target for the cpu and no more.

What it has no fields for travels in annotations, named and written as the real server does, so that
who reads this form and writes it back loses nothing.  In an annotation metrics have a third form:
that of autoscaling/v2beta1, with flat fields (k8s.io/api/autoscaling/v1 has its types).
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec
from lightkube.models.autoscaling_v2 import (
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    MetricSpec,
    MetricStatus,
)

from corral.api.encoding import decode_any
from corral.api.errors import BadRequest
from corral.api.kind import at
from corral.api.kinds.autoscaling.defaults import cpu_metric
from corral.api.object import Document
from corral.api.schema import Schema, schema_of

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"


class _Flat(NamedTuple):
    """A field of the flat form, and where it is in v2; ``always`` is written as 0 if unset."""

    name: str
    path: tuple[str, ...]
    always: bool = False


_METRIC = ("metric", "name")
_SELECTOR = ("metric", "selector")
_TARGETS: Mapping[str, tuple[_Flat, ...]] = {
    "object": (
        _Flat("target", ("describedObject",)),
        _Flat("metricName", _METRIC),
        _Flat("targetValue", ("target", "value"), always=True),
        _Flat("selector", _SELECTOR),
        _Flat("averageValue", ("target", "averageValue")),
    ),
    "pods": (
        _Flat("metricName", _METRIC),
        _Flat("targetAverageValue", ("target", "averageValue"), always=True),
        _Flat("selector", _SELECTOR),
    ),
    "resource": (
        _Flat("name", ("name",)),
        _Flat("targetAverageUtilization", ("target", "averageUtilization")),
        _Flat("targetAverageValue", ("target", "averageValue")),
    ),
    "containerResource": (
        _Flat("name", ("name",)),
        _Flat("targetAverageUtilization", ("target", "averageUtilization")),
        _Flat("targetAverageValue", ("target", "averageValue")),
        _Flat("container", ("container",)),
    ),
    "external": (
        _Flat("metricName", _METRIC),
        _Flat("metricSelector", _SELECTOR),
        _Flat("targetValue", ("target", "value")),
        _Flat("targetAverageValue", ("target", "averageValue")),
    ),
}
_CURRENTS: Mapping[str, tuple[_Flat, ...]] = {
    "object": (
        _Flat("target", ("describedObject",)),
        _Flat("metricName", _METRIC),
        _Flat("currentValue", ("current", "value"), always=True),
        _Flat("selector", _SELECTOR),
        _Flat("averageValue", ("current", "averageValue")),
    ),
    "pods": (
        _Flat("metricName", _METRIC),
        _Flat("currentAverageValue", ("current", "averageValue"), always=True),
        _Flat("selector", _SELECTOR),
    ),
    "resource": (
        _Flat("name", ("name",)),
        _Flat("currentAverageUtilization", ("current", "averageUtilization")),
        _Flat("currentAverageValue", ("current", "averageValue"), always=True),
    ),
    "containerResource": (
        _Flat("name", ("name",)),
        _Flat("currentAverageUtilization", ("current", "averageUtilization")),
        _Flat("currentAverageValue", ("current", "averageValue"), always=True),
        _Flat("container", ("container",)),
    ),
    "external": (
        _Flat("metricName", _METRIC),
        _Flat("metricSelector", _SELECTOR),
        _Flat("currentValue", ("current", "value"), always=True),
        _Flat("currentAverageValue", ("current", "averageValue")),
    ),
}
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY = ("type", "value", "periodSeconds")


def drop_annotations(document: Document) -> None:
    """Take away what only v1 says in annotations: in v2 they mean nothing, and are not kept."""
    _taken(document)


def read(document: Document) -> None:
    """Turn v1 into v2, in place.  Annotations that make no sense are dropped."""
    said = _taken(document)
    spec, status = document.get("spec"), document.get("status")
    if isinstance(spec, dict):
        metrics = [_nested(metric, _TARGETS) for metric in _objects(said.get(METRICS))]
        metrics = _fitting(metrics, MetricSpec)
        if (percent := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
            metrics.append(cpu_metric(percent))
        if metrics:
            spec["metrics"] = metrics
        behavior = _uncapitalized(said.get(BEHAVIOR))
        for fitting in _fitting(_objects([behavior]), HorizontalPodAutoscalerBehavior):
            if fitting:
                spec["behavior"] = fitting
    if isinstance(status, dict):
        _read_status(status, said)


def write(document: Document) -> None:
    """Turn v2 into v1, in place."""
    annotations: dict[str, str] = {}
    spec, status = document.get("spec") or {}, document.get("status") or {}
    metrics = spec.pop("metrics", None) or []
    cpu = next((metric for metric in metrics if _is_cpu_share(metric)), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    if others := [_flat(metric, _TARGETS) for metric in metrics if metric is not cpu]:
        annotations[METRICS] = _text(others)
    if (behavior := spec.pop("behavior", None)) is not None:
        annotations[BEHAVIOR] = _text(_capitalized_behavior(behavior))
    if current := status.pop("currentMetrics", None):
        percent = _current_cpu_share(current)
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
        annotations[CURRENT_METRICS] = _text([_flat(metric, _CURRENTS) for metric in current])
    if conditions := status.pop("conditions", None):
        annotations[CONDITIONS] = _text(conditions)
    document["status"] = {"currentReplicas": 0, "desiredReplicas": 0} | status
    if annotations:
        metadata = document["metadata"]
        metadata["annotations"] = (metadata.get("annotations") or {}) | annotations


def _read_status(status: Document, said: Mapping[str, Any]) -> None:
    percent = status.pop("currentCPUUtilizationPercentage", None)
    current = [_nested(metric, _CURRENTS) for metric in _objects(said.get(CURRENT_METRICS))]
    if fitting := _fitting(current, MetricStatus):
        status["currentMetrics"] = fitting
    elif percent is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": percent}}
        status["currentMetrics"] = [{"type": "Resource", "resource": resource}]
    conditions = _fitting(_objects(said.get(CONDITIONS)), HorizontalPodAutoscalerCondition)
    if conditions:
        status["conditions"] = conditions


def _taken(document: Document) -> dict[str, Any]:
    """What the annotations say that v1 has, which are taken out of the document."""
    said: dict[str, Any] = {}
    annotations = at(document, "metadata", "annotations")
    if not isinstance(annotations, dict):
        return said
    for name in (METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS):
        text = annotations.pop(name, None)
        with suppress(BadRequest):
            said[name] = decode_any(text.encode()) if isinstance(text, str) else None
    if not annotations:
        del document["metadata"]["annotations"]
    return said


def _objects(items: Any) -> list[Document]:
    """The objects of a list; none where anything else is among them."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return []
    return items


def _fitting(documents: list[Document], view: type[msgspec.Struct]) -> list[Document]:
    """The documents, when each of them is what a view can read; else none."""
    schema = _schema(view)
    for document in documents:
        schema.prune(document)
    return [] if any(schema.check(document) for document in documents) else documents


@cache
def _schema(view: type[msgspec.Struct]) -> Schema:
    return Schema(schema_of(view), native=True)


def _is_cpu_share(metric: Document) -> bool:
    resource = metric.get("resource") or {}
    share = at(resource, "target", "averageUtilization")
    return metric["type"] == "Resource" and resource.get("name") == "cpu" and share is not None


def _current_cpu_share(metrics: list[Document]) -> int | None:
    for metric in metrics:
        resource = metric.get("resource") or {}
        share: int | None = at(resource, "current", "averageUtilization")
        if metric["type"] == "Resource" and resource.get("name") == "cpu" and share is not None:
            return share
    return None


def _flat(metric: Document, forms: Mapping[str, tuple[_Flat, ...]]) -> Document:
    flat: Document = {"type": metric["type"]}
    for source, fields in forms.items():
        if (nested := metric.get(source)) is None:
            continue
        flat[source] = {}
        for field in fields:
            value = at(nested, *field.path)
            if value is not None or field.always:
                flat[source][field.name] = "0" if value is None else value
    return flat


def _nested(metric: Document, forms: Mapping[str, tuple[_Flat, ...]]) -> Document:
    nested: Document = {"type": metric.get("type")}
    for source, fields in forms.items():
        if not isinstance(flat := metric.get(source), dict):
            continue
        nested[source] = {}
        for field in fields:
            if (value := flat.get(field.name)) is not None:
                _put(nested[source], field.path, value)
        if isinstance(target := nested[source].get("target"), dict):
            _tell_type(target)
    return nested


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    *above, last = path
    for step in above:
        document = document.setdefault(step, {})
    document[last] = value


def _tell_type(target: Document) -> None:
    """The flat form has no word for the type of a target: its fields tell it.

    A value of 0 stands for none beside another, since the flat form cannot leave it out.
    """
    if "averageUtilization" in target:
        target["type"] = "Utilization"
    elif "averageValue" in target:
        target["type"] = "AverageValue"
        if target.get("value") in ("0", 0):
            del target["value"]
    else:
        target["type"] = "Value"


def _capitalized_behavior(behavior: Document) -> Document:
    """How the real server writes behavior: its inner type, which has Go's names."""
    return {
        _capitalized(direction): _capitalized_rules(behavior.get(direction))
        for direction in ("scaleUp", "scaleDown")
    }


def _capitalized_rules(rules: Document | None) -> Document | None:
    if rules is None:
        return None
    policies = [
        {_capitalized(name): policy[name] for name in _POLICY} for policy in rules["policies"]
    ]
    return {
        _capitalized(name): policies if name == "policies" else rules.get(name) for name in _RULES
    }


def _capitalized(name: str) -> str:
    return name[0].upper() + name[1:]


def _uncapitalized(value: Any) -> Any:
    """The value with names as documents have them, without what is null."""
    if isinstance(value, list):
        return [_uncapitalized(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name[:1].lower() + name[1:]: _uncapitalized(inner)
        for name, inner in value.items()
        if inner is not None
    }


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
