"""How many replicas each metric of an autoscaler asks for, and what is told of it."""

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
from corral.cluster.autoscaler.metrics_client import Measured
from corral.cluster.autoscaler.replicas import (
    USUAL,
    MetricError,
    Proposal,
    Sample,
    Situation,
    Tolerance,
    Unmeasured,
    by_average,
    by_share,
    by_utilization,
    by_value,
)

UNKNOWN: Document = {"type": ""}
"""Stands for a metric that tells nothing, so that each of the others keeps its place."""


@dataclass(eq=False)
class Refusal(Exception):
    """Why a metric asks for no number of replicas.

    ``told`` is the text of the event and of the condition, ``whole`` the one that is told where
    all metrics are spoken of.  ``is_unmeasured``, where the pods may be too new to be known.
    """

    reason: str
    told: str
    whole: str
    is_unmeasured: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """How many a metric asks for, how people are told of the metric, and what it is at."""

    replicas: int
    name: str
    status: Document


def tolerance_of(autoscaler: HorizontalPodAutoscaler) -> Tolerance:
    """By how much metrics may be off: what the autoscaler says, else the usual."""
    behavior = autoscaler.spec.behavior
    tolerance = USUAL
    for field, rules in (
        ("down", behavior and behavior.scaleDown),
        ("up", behavior and behavior.scaleUp),
    ):
        if rules and rules.tolerance is not None:
            tolerance = tolerance._replace(**{field: _thousandths(rules.tolerance) / 1000})
    return tolerance


class Proposals:
    """What the metrics of one autoscaler ask for at present.

    ``selector`` names the pods of its target in its ``namespace``.
    """

    def __init__(
        self, metrics: Measured, namespace: str, selector: str, situation: Situation
    ) -> None:
        self._metrics = metrics
        self._namespace = namespace
        self._selector = selector
        self._situation = situation

    async def of_each(self, specs: Iterable[MetricSpec]) -> list[Asked | Refusal]:
        """What each metric asks for; all of them are asked about at once."""
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(self._of(spec)) for spec in specs]
        return [each.result() for each in asking]

    async def _of(self, spec: MetricSpec) -> Asked | Refusal:
        try:
            return await self.of(spec)
        except Refusal as refusal:
            return refusal

    async def of(self, spec: MetricSpec) -> Asked:
        """What one metric asks for.  Raises Refusal."""
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
        raise Refusal("InvalidMetricSourceType", text, text)

    async def _resource(self, resource: str, container: str, target: MetricTarget) -> Asked:
        words = _RESOURCE if not container else _CONTAINER
        try:
            proposal = await self._used(resource, container, target)
        except MetricError as error:
            whole = f"failed to get {container or resource} {words.value} value: {error}"
            is_unmeasured = isinstance(error, Unmeasured)
            raise Refusal(words.failed, str(error), whole, is_unmeasured) from None
        told: Document = {"name": resource, "current": _of_resource(resource, proposal)}
        if container:
            told["container"] = container
        name = f"{resource} resource"
        if proposal.utilization is not None:
            name = f"{resource} {words.name} utilization (percentage of request)"
        return Asked(proposal.replicas, name, {"type": words.type, words.field: told})

    async def _used(self, resource: str, container: str, target: MetricTarget) -> Proposal:
        """How many the use of a resource asks for.  Raises MetricError."""
        if target.averageValue is None and target.averageUtilization is None:
            raise MetricError(
                "invalid resource metric source: neither an average utilization target nor an "
                "average value (usage) target was set"
            )
        aim = "utilization" if target.averageValue is None else "usage"
        try:
            samples = await _fetched(
                f"metrics for resource {resource}",
                self._metrics.of_pods(self._namespace, self._selector, resource, container),
            )
            if target.averageValue is not None:
                wanted = _thousandths(target.averageValue)
                return by_average(self._situation, samples, wanted, resource=resource)
            assert target.averageUtilization is not None
            return by_utilization(
                self._situation,
                samples,
                target.averageUtilization,
                resource=resource,
                container=container,
            )
        except MetricError as error:
            raise type(error)(f"failed to get {resource} {aim}: {error}") from None

    async def _pods(self, metric: MetricIdentifier, target: MetricTarget) -> Asked:
        try:
            samples = await _fetched(
                f"metric {metric.name}",
                self._metrics.of_custom(self._namespace, self._selector, metric),
            )
            proposal = by_average(self._situation, samples, _thousandths(target.averageValue))
        except MetricError as error:
            whole = f"failed to get pods metric value: {error}"
            raise Refusal("FailedGetPodsMetric", str(error), whole) from None
        told = {"metric": _identifier(metric), "current": {"averageValue": _milli(proposal.value)}}
        status = {"type": "Pods", "pods": told}
        return Asked(proposal.replicas, f"pods metric {metric.name}", status)

    async def _object(self, source: ObjectMetricSource) -> Asked:
        metric, described = source.metric, source.describedObject
        wrapped = "failed to get object metric value: "
        if source.target.type == "AverageValue":
            wrapped += f"failed to get {metric.name} object metric: "
        place = f"{described.kind} {self._namespace}/{described.name}"
        try:
            try:
                total = await self._metrics.of_object(self._namespace, described, metric)
            except MetricError as error:
                raise MetricError(
                    f"unable to get metric {metric.name} on {place}: {error}"
                ) from None
            field, proposal = self._total(total, source.target, "object")
        except MetricError as error:
            raise Refusal("FailedGetObjectMetric", str(error), f"{wrapped}{error}") from None
        told = {
            "metric": _identifier(metric),
            "describedObject": msgspec.to_builtins(described),
            "current": {field: _milli(proposal.value)},
        }
        name = f"{described.kind} metric {metric.name}"
        if field == "averageValue":
            name = f"external metric {metric.name}({_go(metric)})"
        return Asked(proposal.replicas, name, {"type": "Object", "object": told})

    async def _external(self, source: ExternalMetricSource) -> Asked:
        metric = source.metric
        wrapped = f"failed to get {metric.name} external metric value: "
        if source.target.averageValue is not None:
            wrapped += f"failed to get {metric.name} external metric: "
        elif source.target.value is not None:
            wrapped += f"failed to get external metric {metric.name}: "
        place = f"{self._namespace}/{metric.name}/{_go(metric)}"
        try:
            try:
                total = await self._metrics.of_external(self._namespace, metric)
            except MetricError as error:
                raise MetricError(f"unable to get external metric {place}: {error}") from None
            field, proposal = self._total(total, source.target, "external")
        except MetricError as error:
            raise Refusal("FailedGetExternalMetric", str(error), f"{wrapped}{error}") from None
        told = {"metric": _identifier(metric), "current": {field: _milli(proposal.value)}}
        name = f"external metric {metric.name}({_go(metric)})"
        return Asked(proposal.replicas, name, {"type": "External", "external": told})

    def _total(self, total: int, target: MetricTarget, source: str) -> tuple[str, Proposal]:
        """How many a metric of no pod's asks for, and which field tells what it is at."""
        if target.averageValue is not None:
            wanted = _thousandths(target.averageValue)
            return "averageValue", by_share(self._situation, total, wanted)
        if target.value is not None:
            return "value", by_value(self._situation, total, _thousandths(target.value))
        raise MetricError(
            f"invalid {source} metric source: neither a value target nor an average value target "
            "was set"
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """What metrics of resources are called in one of their two forms."""

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


async def _fetched(what: str, samples: Awaitable[Mapping[str, Sample]]) -> Mapping[str, Sample]:
    try:
        return await samples
    except MetricError as error:
        raise type(error)(f"unable to get {what}: {error}") from None


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
    told: Document = msgspec.to_builtins(metric)
    return told


def _go(metric: MetricIdentifier) -> str:
    """A metric's selector as Go prints it: people look for these texts as they know them."""
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
