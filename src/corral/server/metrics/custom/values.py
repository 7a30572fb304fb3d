"""Documents of metric values in their API groups (k8s.io/metrics).  Pure."""

from typing import Final, NamedTuple

from corral.api.kind import Kind
from corral.api.object import Document, Key
from corral.api.quantity import Amount
from corral.api.selectors import LabelSelector, Requirement
from corral.api.time import rfc3339
from corral.server.metrics.custom.metric_rules import Rule
from corral.server.metrics.custom.prometheus import Series

CUSTOM: Final = "custom.metrics.k8s.io"
EXTERNAL: Final = "external.metrics.k8s.io"
VERSIONS: Final = {CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}
"""Of each group, the preferred one first."""
KINDS: Final = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
_MILLI = 10**6
_EXPRESSIONS = {
    "in": "In",
    "notin": "NotIn",
    "!=": "NotIn",
    "exists": "Exists",
    "!": "DoesNotExist",
}


def value_list(group: str, version: str, items: list[Document]) -> Document:
    return {
        "kind": KINDS[group],
        "apiVersion": f"{group}/{version}",
        "metadata": {},
        "items": items,
    }


class MetricRequest(NamedTuple):
    """A request for a metric of objects of a kind; ``selector`` matches labels of series."""

    version: str
    kind: Kind
    metric: str
    selector: LabelSelector
    rule: Rule


def custom_value(request: MetricRequest, key: Key, series: Series) -> Document:
    """Return the MetricValue of an object."""
    kind = request.kind
    described_object = {"kind": kind.name, "name": key.name, "apiVersion": kind.api_version}
    if key.namespace:
        described_object["namespace"] = key.namespace
    selector = _selector_document(request.selector)
    if request.version == "v1beta1":
        metric_fields: Document = {"metricName": request.metric, "selector": selector}
        window = "window"
    else:
        metric_fields = {"metric": {"name": request.metric, "selector": selector}}
        window = "windowSeconds"
    return {
        "describedObject": described_object,
        **metric_fields,
        **_value_fields(series, request.rule, window),
    }


def external_value(metric: str, rule: Rule, series: Series) -> Document:
    """Return the ExternalMetricValue of a series."""
    return {
        "metricName": metric,
        "metricLabels": series.labels,
        **_value_fields(series, rule, "window"),
    }


def _value_fields(series: Series, rule: Rule, window: str) -> Document:
    document: Document = {
        "timestamp": rfc3339(int(series.timestamp)),
        "value": quantity(series.value),
    }
    if rule.window_seconds is not None:
        document[window] = rule.window_seconds
    return document


def quantity(value: float) -> str:
    """Return a value as a quantity, in thousandths as other adapters do."""
    return str(Amount(round(value * 1000) * _MILLI))


def _selector_document(selector: LabelSelector) -> Document | None:
    """Return a selector as meta/v1 LabelSelector; None for an empty one."""
    if not selector:
        return None
    plain = {one.key: one.values[0] for one in selector.requirements if one.operator in ("=", "==")}
    others = [_expression(one) for one in selector.requirements if one.operator in _EXPRESSIONS]
    written = {"matchLabels": plain, "matchExpressions": others}
    return {name: value for name, value in written.items() if value}


def _expression(one: Requirement) -> Document:
    values = {"values": list(one.values)} if one.values else {}
    return {"key": one.key, "operator": _EXPRESSIONS[one.operator], **values}
