"""Values of metrics as documents of their API groups (k8s.io/metrics).  Pure."""

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


def listed(group: str, version: str, items: list[Document]) -> Document:
    return {
        "kind": KINDS[group],
        "apiVersion": f"{group}/{version}",
        "metadata": {},
        "items": items,
    }


class Asked(NamedTuple):
    """What is asked of objects: a metric of a kind, perhaps of some of its series alone."""

    version: str
    kind: Kind
    metric: str
    selector: LabelSelector
    rule: Rule


def of_object(asked: Asked, key: Key, at: Series) -> Document:
    """The value of a metric of one object."""
    kind = asked.kind
    described = {"kind": kind.name, "name": key.name, "apiVersion": kind.api_version}
    if key.namespace:
        described["namespace"] = key.namespace
    chosen = _written(asked.selector)
    if asked.version == "v1beta1":
        named: Document = {"metricName": asked.metric, "selector": chosen}
        window = "window"
    else:
        named = {"metric": {"name": asked.metric, "selector": chosen}}
        window = "windowSeconds"
    return {"describedObject": described, **named, **_measured(at, asked.rule, window)}


def of_nothing(metric: str, rule: Rule, at: Series) -> Document:
    """The value of a series of what is no object."""
    return {"metricName": metric, "metricLabels": at.labels, **_measured(at, rule, "window")}


def _measured(at: Series, rule: Rule, window: str) -> Document:
    document: Document = {"timestamp": rfc3339(int(at.moment)), "value": quantity(at.value)}
    if rule.window_seconds is not None:
        document[window] = rule.window_seconds
    return document


def quantity(value: float) -> str:
    """A value in thousandths, as adapters tell it."""
    return str(Amount(round(value * 1000) * _MILLI))


def _written(selector: LabelSelector) -> Document | None:
    """A selector as meta/v1 LabelSelector; None where there is none."""
    if not selector:
        return None
    plain = {one.key: one.values[0] for one in selector.requirements if one.operator in ("=", "==")}
    others = [_expression(one) for one in selector.requirements if one.operator in _EXPRESSIONS]
    written = {"matchLabels": plain, "matchExpressions": others}
    return {name: value for name, value in written.items() if value}


def _expression(one: Requirement) -> Document:
    values = {"values": list(one.values)} if one.values else {}
    return {"key": one.key, "operator": _EXPRESSIONS[one.operator], **values}
