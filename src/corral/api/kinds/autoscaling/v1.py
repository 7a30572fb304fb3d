"""Conversion of autoscaling/v1, the old version of autoscalers, which only has a CPU target.

Other fields are in annotations, in kube-apiserver's names and format, so that a round trip through
v1 loses nothing.  Metrics have a third form in annotations: the flat one of autoscaling/v2beta1
(its types are in k8s.io/api/autoscaling/v1).
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


class _FlatField(NamedTuple):
    """A field of the flat form, and its path in v2; with ``always`` it is 0 if unset."""

    name: str
    path: tuple[str, ...]
    always: bool = False


_METRIC = ("metric", "name")
_SELECTOR = ("metric", "selector")
_TARGETS: Mapping[str, tuple[_FlatField, ...]] = {
    "object": (
        _FlatField("target", ("describedObject",)),
        _FlatField("metricName", _METRIC),
        _FlatField("targetValue", ("target", "value"), always=True),
        _FlatField("selector", _SELECTOR),
        _FlatField("averageValue", ("target", "averageValue")),
    ),
    "pods": (
        _FlatField("metricName", _METRIC),
        _FlatField("targetAverageValue", ("target", "averageValue"), always=True),
        _FlatField("selector", _SELECTOR),
    ),
    "resource": (
        _FlatField("name", ("name",)),
        _FlatField("targetAverageUtilization", ("target", "averageUtilization")),
        _FlatField("targetAverageValue", ("target", "averageValue")),
    ),
    "containerResource": (
        _FlatField("name", ("name",)),
        _FlatField("targetAverageUtilization", ("target", "averageUtilization")),
        _FlatField("targetAverageValue", ("target", "averageValue")),
        _FlatField("container", ("container",)),
    ),
    "external": (
        _FlatField("metricName", _METRIC),
        _FlatField("metricSelector", _SELECTOR),
        _FlatField("targetValue", ("target", "value")),
        _FlatField("targetAverageValue", ("target", "averageValue")),
    ),
}
_CURRENTS: Mapping[str, tuple[_FlatField, ...]] = {
    "object": (
        _FlatField("target", ("describedObject",)),
        _FlatField("metricName", _METRIC),
        _FlatField("currentValue", ("current", "value"), always=True),
        _FlatField("selector", _SELECTOR),
        _FlatField("averageValue", ("current", "averageValue")),
    ),
    "pods": (
        _FlatField("metricName", _METRIC),
        _FlatField("currentAverageValue", ("current", "averageValue"), always=True),
        _FlatField("selector", _SELECTOR),
    ),
    "resource": (
        _FlatField("name", ("name",)),
        _FlatField("currentAverageUtilization", ("current", "averageUtilization")),
        _FlatField("currentAverageValue", ("current", "averageValue"), always=True),
    ),
    "containerResource": (
        _FlatField("name", ("name",)),
        _FlatField("currentAverageUtilization", ("current", "averageUtilization")),
        _FlatField("currentAverageValue", ("current", "averageValue"), always=True),
        _FlatField("container", ("container",)),
    ),
    "external": (
        _FlatField("metricName", _METRIC),
        _FlatField("metricSelector", _SELECTOR),
        _FlatField("currentValue", ("current", "value"), always=True),
        _FlatField("currentAverageValue", ("current", "averageValue")),
    ),
}
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY = ("type", "value", "periodSeconds")


def drop_annotations(document: Document) -> None:
    """Drop the annotations of v1, which have no meaning in v2."""
    _pop_annotations(document)


def read(document: Document) -> None:
    """Convert v1 to v2, in place.  Invalid annotations are dropped."""
    values = _pop_annotations(document)
    spec, status = document.get("spec"), document.get("status")
    if isinstance(spec, dict):
        metrics = [_to_nested(metric, _TARGETS) for metric in _objects(values.get(METRICS))]
        metrics = _valid(metrics, MetricSpec)
        if (percent := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
            metrics.append(cpu_metric(percent))
        if metrics:
            spec["metrics"] = metrics
        behavior = _uncapitalized(values.get(BEHAVIOR))
        for valid in _valid(_objects([behavior]), HorizontalPodAutoscalerBehavior):
            if valid:
                spec["behavior"] = valid
    if isinstance(status, dict):
        _read_status(status, values)


def write(document: Document) -> None:
    """Convert v2 to v1, in place."""
    annotations: dict[str, str] = {}
    spec, status = document.get("spec") or {}, document.get("status") or {}
    metrics = spec.pop("metrics", None) or []
    cpu = next((metric for metric in metrics if _is_cpu_share(metric)), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    if others := [_to_flat(metric, _TARGETS) for metric in metrics if metric is not cpu]:
        annotations[METRICS] = _text(others)
    if (behavior := spec.pop("behavior", None)) is not None:
        annotations[BEHAVIOR] = _text(_capitalized_behavior(behavior))
    if current := status.pop("currentMetrics", None):
        percent = _current_cpu_share(current)
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
        annotations[CURRENT_METRICS] = _text([_to_flat(metric, _CURRENTS) for metric in current])
    if conditions := status.pop("conditions", None):
        annotations[CONDITIONS] = _text(conditions)
    document["status"] = {"currentReplicas": 0, "desiredReplicas": 0} | status
    if annotations:
        metadata = document["metadata"]
        metadata["annotations"] = (metadata.get("annotations") or {}) | annotations


def _read_status(status: Document, values: Mapping[str, Any]) -> None:
    percent = status.pop("currentCPUUtilizationPercentage", None)
    current = [_to_nested(metric, _CURRENTS) for metric in _objects(values.get(CURRENT_METRICS))]
    if valid := _valid(current, MetricStatus):
        status["currentMetrics"] = valid
    elif percent is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": percent}}
        status["currentMetrics"] = [{"type": "Resource", "resource": resource}]
    conditions = _valid(_objects(values.get(CONDITIONS)), HorizontalPodAutoscalerCondition)
    if conditions:
        status["conditions"] = conditions


def _pop_annotations(document: Document) -> dict[str, Any]:
    """Remove the annotations of v1 from a document; return their decoded values."""
    values: dict[str, Any] = {}
    annotations = at(document, "metadata", "annotations")
    if not isinstance(annotations, dict):
        return values
    for name in (METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS):
        text = annotations.pop(name, None)
        with suppress(BadRequest):
            values[name] = decode_any(text.encode()) if isinstance(text, str) else None
    if not annotations:
        del document["metadata"]["annotations"]
    return values


def _objects(items: Any) -> list[Document]:
    """Return the objects of a list; none if it has other items."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return []
    return items


def _valid(documents: list[Document], view: type[msgspec.Struct]) -> list[Document]:
    """Return the documents if all conform to a view, else none."""
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


def _to_flat(metric: Document, forms: Mapping[str, tuple[_FlatField, ...]]) -> Document:
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


def _to_nested(metric: Document, forms: Mapping[str, tuple[_FlatField, ...]]) -> Document:
    nested: Document = {"type": metric.get("type")}
    for source, fields in forms.items():
        if not isinstance(flat := metric.get(source), dict):
            continue
        nested[source] = {}
        for field in fields:
            if (value := flat.get(field.name)) is not None:
                _put(nested[source], field.path, value)
        if isinstance(target := nested[source].get("target"), dict):
            _set_target_type(target)
    return nested


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for step in parents:
        document = document.setdefault(step, {})
    document[last] = value


def _set_target_type(target: Document) -> None:
    """Set the type of a target from its fields, since the flat form has no type.

    A value of 0 beside another counts as unset, since the flat form cannot omit it.
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
    """Return behavior as kube-apiserver encodes it: the internal type, with Go's field names."""
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
    """Return a value with JSON field names, without nulls."""
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
