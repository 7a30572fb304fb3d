"""Validation of HorizontalPodAutoscalers (Kubernetes' pkg/apis/autoscaling/validation)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from corral.api import quantity
from corral.api.errors import Cause, limited
from corral.api.kind import Verdict, at
from corral.api.kinds.causes import (
    each_invalid,
    forbidden,
    invalid,
    required,
    too_many,
    unsupported,
)
from corral.api.names import label_faults, label_key_faults, path_segment_faults
from corral.api.object import Document

LONGEST_WINDOW = 3600
"""The longest stabilization window in seconds."""
LONGEST_PERIOD = 1800
"""The longest period of a policy in seconds."""

MOST_METRICS = 100
"""Each is queried on every sync.  Kubernetes has no limit but the size of an object."""

_LARGEST = 2**31 - 1
_SELECT_POLICIES = ("Max", "Min", "Disabled")
_POLICIES = ("Pods", "Percent")
_TARGETS = ("Utilization", "Value", "AverageValue")
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate an autoscaler: replica counts, target, metrics and behavior."""
    return Verdict(limited(_check(document, old)))


def _check(document: Document, old: Document | None) -> Iterator[Cause]:
    spec = document["spec"]
    yield from _check_replicas(spec)
    target, old_target = spec["scaleTargetRef"], at(old, "spec", "scaleTargetRef") or {}
    yield from _check_reference("spec.scaleTargetRef", target)
    names = ("apiVersion", "kind")
    if [target.get(name) for name in names] != [old_target.get(name) for name in names]:
        yield from _check_api_version("spec.scaleTargetRef.apiVersion", target, core=False)
    if (count := len(spec["metrics"])) > max(MOST_METRICS, len(at(old, "spec", "metrics") or ())):
        yield too_many("spec.metrics", count, MOST_METRICS)
    yield from _check_metrics(spec["metrics"], spec["minReplicas"])
    for direction, rules in (spec.get("behavior") or {}).items():
        yield from _check_rules(f"spec.behavior.{direction}", rules)
    for name in ("currentReplicas", "desiredReplicas"):
        if (count := at(document, "status", name) or 0) < 0:
            yield invalid(f"status.{name}", count, "must be greater than or equal to 0")


def _check_replicas(spec: Document) -> Iterator[Cause]:
    minimum, maximum = spec["minReplicas"], spec["maxReplicas"]
    if minimum < 0:
        yield invalid("spec.minReplicas", minimum, "must be greater than or equal to 0")
    if maximum < 1:
        yield invalid("spec.maxReplicas", maximum, "must be greater than 0")
    if maximum > _LARGEST:
        yield invalid("spec.maxReplicas", maximum, f"must be less than or equal to {_LARGEST}")
    if maximum < minimum:
        fault = "must be greater than or equal to `minReplicas`"
        yield invalid("spec.maxReplicas", maximum, fault)


def _check_reference(path: str, reference: Document) -> Iterator[Cause]:
    for name in ("kind", "name"):
        if not reference[name]:
            yield required(f"{path}.{name}")
        yield from each_invalid(
            f"{path}.{name}", reference[name], path_segment_faults(reference[name])
        )


def _check_api_version(path: str, reference: Document, *, core: bool) -> Iterator[Cause]:
    """Check an apiVersion; ``core`` allows the core group."""
    text = reference.get("apiVersion") or ""
    if text.count("/") > 1:
        yield invalid(path, text, f"unexpected GroupVersion string: {text}")
    elif not core and not text.rpartition("/")[0]:
        yield invalid(path, text, "apiVersion must specify API group")


# -------------------------------------------------------------------- metrics


def _check_metrics(metrics: list[Document], minimum: int) -> Iterator[Cause]:
    for index, metric in enumerate(metrics):
        yield from _check_metric(f"spec.metrics[{index}]", metric)
    if minimum == 0 and not {metric["type"] for metric in metrics} & {"Object", "External"}:
        why = "must specify at least one Object or External metric to support scaling to zero "
        yield forbidden("spec.metrics", f"{why}replicas")


def _check_metric(path: str, metric: Document) -> Iterator[Cause]:
    if not metric["type"]:
        yield required(f"{path}.type", "must specify a metric source type")
    if metric["type"] not in _SOURCES:
        yield unsupported(f"{path}.type", metric["type"], _SOURCES)
    present = [name for name in _CHECKS if metric.get(name) is not None]
    if present:
        source = metric[present[0]]
        yield from _CHECKS[present[0]](f"{path}.{present[0]}", source)
        yield from _check_target(f"{path}.{present[0]}.target", source["target"])
    expected = _SOURCES.get(metric["type"], "")
    if expected and expected not in present:
        yield required(
            f"{path}.{expected}", "must populate information for the given metric source"
        )
    if len(present) > 1:
        for name in present:
            if name != expected:
                yield forbidden(f"{path}.{name}", "must populate the given metric source only")


def _check_target(path: str, target: Document) -> Iterator[Cause]:
    if not target["type"]:
        yield required(f"{path}.type", "must specify a metric target type")
    if target["type"] not in _TARGETS:
        fault = "must be either Utilization, Value, or AverageValue"
        yield invalid(f"{path}.type", target["type"], fault)
    for name in ("value", "averageValue"):
        if (value := target.get(name)) is not None and quantity.amount(value).nanos <= 0:
            yield invalid(f"{path}.{name}", value, "must be positive")
    if (percent := target.get("averageUtilization")) is not None and percent < 1:
        yield invalid(f"{path}.averageUtilization", percent, "must be greater than 0")
    if percent is not None and percent > _LARGEST:
        fault = f"must be less than or equal to {_LARGEST}"
        yield invalid(f"{path}.averageUtilization", percent, fault)


def _check_object(path: str, source: Document) -> Iterator[Cause]:
    yield from _check_reference(f"{path}.describedObject", source["describedObject"])
    place = f"{path}.describedObject.apiVersion"
    yield from _check_api_version(place, source["describedObject"], core=True)
    yield from _check_identifier(f"{path}.metric", source["metric"])
    if not _has(source, "value") and not _has(source, "averageValue"):
        why = "must set either a target value or averageValue"
        yield required(f"{path}.target.averageValue", why)


def _check_external(path: str, source: Document) -> Iterator[Cause]:
    yield from _check_identifier(f"{path}.metric", source["metric"])
    fields = {"value": "a target value for metric", "averageValue": "a per-pod target"}
    yield from _check_one_target(path, source, fields)


def _check_pods(path: str, source: Document) -> Iterator[Cause]:
    yield from _check_identifier(f"{path}.metric", source["metric"])
    if not _has(source, "averageValue"):
        why = "must specify a positive target averageValue"
        yield required(f"{path}.target.averageValue", why)


def _check_resource(path: str, source: Document) -> Iterator[Cause]:
    if not source["name"]:
        yield required(f"{path}.name", "must specify a resource name")
    fields = {"averageValue": "a target raw value", "averageUtilization": "a target utilization"}
    yield from _check_one_target(path, source, fields)


def _check_one_target(path: str, source: Document, fields: Mapping[str, str]) -> Iterator[Cause]:
    """Check that one of two fields of a target is set; ``fields`` are their descriptions."""
    (first, one), (second, other) = fields.items()
    if not _has(source, first) and not _has(source, second):
        yield required(f"{path}.target.{second}", f"must set either {one} or {other}")
    if _has(source, first) and _has(source, second):
        yield forbidden(f"{path}.target.{first}", f"may not set both {one} and {other}")


def _check_container_resource(path: str, source: Document) -> Iterator[Cause]:
    yield from _check_resource(path, source)
    name, container = source["name"], source["container"]
    if name:
        yield from each_invalid(f"{path}.name", name, _resource_faults(name))
    if container:
        yield from each_invalid(f"{path}.container", container, label_faults(container))
    else:
        yield required(f"{path}.container", "must specify a container")


def _resource_faults(name: str) -> list[str]:
    if "/" in name or name in _CONTAINER_RESOURCES or name.startswith("hugepages-"):
        return label_key_faults(name)
    return label_key_faults(name) or ["must be a standard resource for containers"]


def _check_identifier(path: str, metric: Document) -> Iterator[Cause]:
    if not metric["name"]:
        yield required(f"{path}.name", "must specify a metric name")
    yield from each_invalid(f"{path}.name", metric["name"], path_segment_faults(metric["name"]))


def _has(source: Document, name: str) -> bool:
    return source["target"].get(name) is not None


_CHECKS: Mapping[str, Callable[[str, Any], Iterator[Cause]]] = {
    "object": _check_object,
    "external": _check_external,
    "pods": _check_pods,
    "resource": _check_resource,
    "containerResource": _check_container_resource,
}
_SOURCES = {name[0].upper() + name[1:]: name for name in _CHECKS}


# ------------------------------------------------------------------- behavior


def _check_rules(path: str, rules: Document) -> Iterator[Cause]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        fault = "must be greater than or equal to zero"
        yield invalid(f"{path}.stabilizationWindowSeconds", window, fault)
    if window is not None and window > LONGEST_WINDOW:
        fault = f"must be less than or equal to {LONGEST_WINDOW}"
        yield invalid(f"{path}.stabilizationWindowSeconds", window, fault)
    if rules["selectPolicy"] not in _SELECT_POLICIES:
        yield unsupported(f"{path}.selectPolicy", rules["selectPolicy"], _SELECT_POLICIES)
    if not rules["policies"]:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(rules["policies"]):
        yield from _check_policy(f"{path}.policies[{index}]", policy)
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity.amount(tolerance) < quantity.ZERO:
        yield invalid(f"{path}.tolerance", tolerance, "must be greater or equal to zero")


def _check_policy(path: str, policy: Document) -> Iterator[Cause]:
    if policy["type"] not in _POLICIES:
        yield unsupported(f"{path}.type", policy["type"], _POLICIES)
    for name in ("value", "periodSeconds"):
        if policy[name] <= 0:
            yield invalid(f"{path}.{name}", policy[name], "must be greater than zero")
    if policy["value"] > _LARGEST:
        fault = f"must be less than or equal to {_LARGEST}"
        yield invalid(f"{path}.value", policy["value"], fault)
    if policy["periodSeconds"] > LONGEST_PERIOD:
        fault = f"must be less than or equal to {LONGEST_PERIOD}"
        yield invalid(f"{path}.periodSeconds", policy["periodSeconds"], fault)
