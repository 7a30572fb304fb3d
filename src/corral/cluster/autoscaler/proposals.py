"""The replicas that each metric of an autoscaler proposes, and its entry in the status."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from lightkube.models.autoscaling_v2 import (
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
)

from corral.api import quantity
from corral.api.object import Document
from corral.api.quantity import Amount, Form
from corral.cluster.autoscaler.metrics_client import MetricsClient
from corral.cluster.autoscaler.replicas import (
    DEFAULT_TOLERANCE,
    MetricError,
    Proposal,
    Sample,
    ScaleState,
    Tolerance,
    Unmeasured,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
)

UNKNOWN: Document = {"type": ""}
"""Status of an unavailable metric, so that the others keep their index."""


@dataclass(eq=False)
class InvalidMetric(Exception):
    """A metric is unavailable or invalid.

    ``message`` is the message of the event and the condition, ``summary`` the one in the summary of
    all metrics. ``is_unmeasured``: the pods may be too new to have metrics.
    """

    reason: str
    message: str
    summary: str
    is_unmeasured: bool = False


@dataclass(frozen=True, slots=True)
class MetricProposal:
    """Proposed replicas of a metric, its name in messages, and its status."""

    replicas: int
    name: str
    status: Document


def tolerance_of(autoscaler: HorizontalPodAutoscaler) -> Tolerance:
    """Return the tolerances of the autoscaler, or the defaults."""
    behavior = autoscaler.spec.behavior
    tolerance = DEFAULT_TOLERANCE
    for field, rules in (
        ("down", behavior and behavior.scaleDown),
        ("up", behavior and behavior.scaleUp),
    ):
        if rules and rules.tolerance is not None:
            tolerance = tolerance._replace(**{field: _thousandths(rules.tolerance) / 1000})
    return tolerance


class Proposals:
    """Evaluates the metrics of one autoscaler.

    ``selector`` selects the pods of its target in its ``namespace``.
    """

    def __init__(
        self, metrics: MetricsClient, namespace: str, selector: str, state: ScaleState
    ) -> None:
        self._metrics = metrics
        self._namespace = namespace
        self._selector = selector
        self._state = state

    async def evaluate_all(
        self, specs: Iterable[MetricSpec]
    ) -> list[MetricProposal | InvalidMetric]:
        """Evaluate all metrics concurrently."""
        async with asyncio.TaskGroup() as tasks:
            evaluations = [tasks.create_task(self._evaluate(spec)) for spec in specs]
        return [each.result() for each in evaluations]

    async def _evaluate(self, spec: MetricSpec) -> MetricProposal | InvalidMetric:
        try:
            return await self.evaluate(spec)
        except InvalidMetric as error:
            return error

    async def evaluate(self, spec: MetricSpec) -> MetricProposal:
        """Evaluate one metric. Raises Refusal."""
        match spec.type:
            case "Resource" if spec.resource is not None:
                return await self._resource(spec.resource.name, "", spec.resource.target)
            case "ContainerResource" if (source := spec.containerResource) is not None:
                return await self._resource(source.name, source.container, source.target)
            case "Pods" if spec.pods is not None:
                return await self._pods(spec.pods.metric, spec.pods.target)
            case "Object" if spec.object is not None:
                return await self._object(spec.object)
            case "External" if spec.external is not None:
                return await self._external(spec.external)
        text = f'unknown metric source type "{spec.type}"'
        raise InvalidMetric("InvalidMetricSourceType", text, text)

    async def _resource(
        self, resource: str, container: str, target: MetricTarget
    ) -> MetricProposal:
        words = _RESOURCE if not container else _CONTAINER
        try:
            proposal = await self._usage_proposal(resource, container, target)
        except MetricError as error:
            summary = f"failed to get {container or resource} {words.value} value: {error}"
            is_unmeasured = isinstance(error, Unmeasured)
            raise InvalidMetric(words.failed, str(error), summary, is_unmeasured) from None
        source: Document = {"name": resource, "current": _of_resource(resource, proposal)}
        if container:
            source["container"] = container
        name = f"{resource} resource"
        if proposal.utilization is not None:
            name = f"{resource} {words.name} utilization (percentage of request)"
        return MetricProposal(proposal.replicas, name, {"type": words.type, words.field: source})

    async def _usage_proposal(
        self, resource: str, container: str, target: MetricTarget
    ) -> Proposal:
        """Return the proposal for the usage of a resource. Raises MetricError."""
        if target.averageValue is None and target.averageUtilization is None:
            raise MetricError(
                "invalid resource metric source: neither an average utilization target nor an "
                "average value (usage) target was set"
            )
        target_name = "utilization" if target.averageValue is None else "usage"
        try:
            samples = await _fetch(
                f"metrics for resource {resource}",
                self._metrics.of_pods(self._namespace, self._selector, resource, container),
            )
            if target.averageValue is not None:
                average = _thousandths(target.averageValue)
                return by_average(self._state, samples, average, resource=resource)
            assert target.averageUtilization is not None
            return by_utilization(
                self._state,
                samples,
                target.averageUtilization,
                resource=resource,
                container=container,
            )
        except MetricError as error:
            raise type(error)(f"failed to get {resource} {target_name}: {error}") from None

    async def _pods(self, metric: MetricIdentifier, target: MetricTarget) -> MetricProposal:
        try:
            samples = await _fetch(
                f"metric {metric.name}",
                self._metrics.of_custom(self._namespace, self._selector, metric),
            )
            proposal = by_average(self._state, samples, _thousandths(target.averageValue))
        except MetricError as error:
            summary = f"failed to get pods metric value: {error}"
            raise InvalidMetric("FailedGetPodsMetric", str(error), summary) from None
        current = {"averageValue": _milli(proposal.value)}
        status = {"type": "Pods", "pods": {"metric": _identifier(metric), "current": current}}
        return MetricProposal(proposal.replicas, f"pods metric {metric.name}", status)

    async def _object(self, source: ObjectMetricSource) -> MetricProposal:
        metric, described = source.metric, source.describedObject
        prefix = "failed to get object metric value: "
        if source.target.type == "AverageValue":
            prefix += f"failed to get {metric.name} object metric: "
        location = f"{described.kind} {self._namespace}/{described.name}"
        try:
            try:
                total = await self._metrics.of_object(self._namespace, described, metric)
            except MetricError as error:
                raise MetricError(
                    f"unable to get metric {metric.name} on {location}: {error}"
                ) from None
            field, proposal = self._total_proposal(total, source.target, "object")
        except MetricError as error:
            raise InvalidMetric("FailedGetObjectMetric", str(error), f"{prefix}{error}") from None
        status = {
            "metric": _identifier(metric),
            "describedObject": msgspec.to_builtins(described),
            "current": {field: _milli(proposal.value)},
        }
        name = f"{described.kind} metric {metric.name}"
        if field == "averageValue":
            name = f"external metric {metric.name}({_go_format(metric)})"
        return MetricProposal(proposal.replicas, name, {"type": "Object", "object": status})

    async def _external(self, source: ExternalMetricSource) -> MetricProposal:
        metric = source.metric
        prefix = f"failed to get {metric.name} external metric value: "
        if source.target.averageValue is not None:
            prefix += f"failed to get {metric.name} external metric: "
        elif source.target.value is not None:
            prefix += f"failed to get external metric {metric.name}: "
        location = f"{self._namespace}/{metric.name}/{_go_format(metric)}"
        try:
            try:
                total = await self._metrics.of_external(self._namespace, metric)
            except MetricError as error:
                raise MetricError(f"unable to get external metric {location}: {error}") from None
            field, proposal = self._total_proposal(total, source.target, "external")
        except MetricError as error:
            raise InvalidMetric("FailedGetExternalMetric", str(error), f"{prefix}{error}") from None
        status = {"metric": _identifier(metric), "current": {field: _milli(proposal.value)}}
        name = f"external metric {metric.name}({_go_format(metric)})"
        return MetricProposal(proposal.replicas, name, {"type": "External", "external": status})

    def _total_proposal(
        self, total: int, target: MetricTarget, source: str
    ) -> tuple[str, Proposal]:
        """Return the status field and the proposal of a metric that is not of pods."""
        if target.averageValue is not None:
            average = _thousandths(target.averageValue)
            return "averageValue", by_value_per_pod(self._state, total, average)
        if target.value is not None:
            return "value", by_value(self._state, total, _thousandths(target.value))
        raise MetricError(
            f"invalid {source} metric source: neither a value target nor an average value target "
            "was set"
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """Field names and message parts of the two resource metric sources."""

    type: str
    field: str
    failed: str
    value: str
    name: str


_RESOURCE = _Words("Resource", "resource", "FailedGetResourceMetric", "resource metric", "resource")
_CONTAINER = _Words(
    "ContainerResource",
    "containerResource",
    "FailedGetContainerResourceMetric",
    "container metric",
    "container resource",
)


async def _fetch(
    description: str, samples: Awaitable[Mapping[str, Sample]]
) -> Mapping[str, Sample]:
    try:
        return await samples
    except MetricError as error:
        raise type(error)(f"unable to get {description}: {error}") from None


def _of_resource(resource: str, proposal: Proposal) -> Document:
    form = Form.BINARY if resource == "memory" else Form.DECIMAL
    current: Document = {"averageValue": _milli(proposal.value, form)}
    if proposal.utilization is not None:
        current["averageUtilization"] = proposal.utilization
    return current


def _milli(value: int, form: Form = Form.DECIMAL) -> str:
    return str(Amount(value * 10**6, form))


def _thousandths(text: str | None) -> int:
    return quantity.amount(text).rounded_up(-3)


def _identifier(metric: MetricIdentifier) -> Document:
    document: Document = msgspec.to_builtins(metric)
    return document


def _go_format(metric: MetricIdentifier) -> str:
    """Return a selector in Go's format, which KubeVirt's and Kubernetes' users search for."""
    selector = metric.selector
    if selector is None:
        return "nil"
    labels = "".join(
        f"{key}: {value}," for key, value in sorted((selector.matchLabels or {}).items())
    )
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},"
        f"Values:[{' '.join(each.values or ())}],}},"
        for each in selector.matchExpressions or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
