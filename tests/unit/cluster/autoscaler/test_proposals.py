"""The replicas that each kind of metric proposes, and the messages about them."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler, MetricSpec
from lightkube.models.core_v1 import Pod

from corral.cluster.autoscaler.proposals import (
    InvalidMetric,
    MetricProposal,
    Proposals,
    tolerance_of,
)
from corral.cluster.autoscaler.replicas import MetricError, Sample, ScaleState, Tolerance

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = {
    "metadata": {"name": "pod", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "compute", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
        ]
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T10:00:00Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
        ],
    },
}
SELECTOR = {
    "matchLabels": {"b": "2", "a": "1"},
    "matchExpressions": [{"key": "c", "operator": "In", "values": ["3", "4"]}],
}
GO = (
    "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:"
    "[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[3 4],},},}"
)
NO_TARGET = (
    "invalid resource metric source: neither an average utilization target nor an average value "
    "(usage) target was set"
)


class FixedMetrics:
    """Metrics that all have one value, in thousandths; or the message of their error."""

    def __init__(self, value: int | str) -> None:
        self.value = value

    def known(self) -> int:
        if isinstance(self.value, str):
            raise MetricError(self.value)
        return self.value

    async def of_pods(self, _namespace, _selector, _resource, _container):
        return {"pod": Sample(self.known(), NOW, timedelta(seconds=15))}

    async def of_custom(self, _namespace, _selector, _metric):
        return {"pod": Sample(self.known(), NOW, timedelta(seconds=15))}

    async def of_object(self, _namespace, _reference, _metric):
        return self.known()

    async def of_external(self, _namespace, _metric):
        return self.known()


async def ask(spec: dict, value: int | str):
    pod = msgspec.convert(POD, Pod, strict=False)
    state = ScaleState(current=1, observed=2, pods=[pod], now=NOW)
    proposals = Proposals(FixedMetrics(value), "default", "app=web", state)
    return await proposals.evaluate(msgspec.convert(spec, MetricSpec))


def resource(name="cpu", **target) -> dict:
    return {"type": "Resource", "resource": {"name": name, "target": {"type": "", **target}}}


def container(**target) -> dict:
    source = {"name": "cpu", "container": "compute", "target": {"type": "", **target}}
    return {"type": "ContainerResource", "containerResource": source}


def metric(kind: str, selector=None, **target) -> dict:
    named = {"name": "queue", **({"selector": selector} if selector else {})}
    source = {"metric": named, "target": {"type": "Value", **target}}
    if kind == "Object":
        source["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    return {"type": kind, kind.lower(): source}


@pytest.mark.parametrize(
    ("spec", "value", "replicas", "name", "current"),
    [
        (
            resource(averageUtilization=75),
            283,
            4,
            "cpu resource utilization (percentage of request)",
            {"averageUtilization": 283, "averageValue": "283m"},
        ),
        (resource(averageValue="100m"), 283, 3, "cpu resource", {"averageValue": "283m"}),
        (
            resource("memory", averageUtilization=50),
            (100 << 20) * 1000,
            2,
            "memory resource utilization (percentage of request)",
            {"averageUtilization": 100, "averageValue": "100Mi"},
        ),
        (
            container(averageUtilization=50),
            100,
            2,
            "cpu container resource utilization (percentage of request)",
            {"averageUtilization": 100, "averageValue": "100m"},
        ),
        (
            metric("Pods", averageValue="1"),
            2500,
            3,
            "pods metric queue",
            {"averageValue": "2500m"},
        ),
        (metric("Object", value="1"), 3000, 3, "Service metric queue", {"value": "3"}),
        (
            metric("Object", averageValue="1"),
            3000,
            3,
            "external metric queue(nil)",
            {"averageValue": "1500m"},
        ),
        (
            metric("External", SELECTOR, value="1"),
            3000,
            3,
            f"external metric queue({GO})",
            {"value": "3"},
        ),
        (
            metric("External", averageValue="1"),
            3001,
            4,
            "external metric queue(nil)",
            {"averageValue": "1501m"},
        ),
    ],
)
async def test_the_status_of_each_metric_is_kubernetes(spec, value, replicas, name, current):
    proposal = await ask(spec, value)
    assert (proposal.replicas, proposal.name) == (replicas, name)
    (source,) = (message for field, message in proposal.status.items() if field != "type")
    assert source["current"] == current
    (given,) = (message for field, message in spec.items() if field != "type")
    kept = {"name", "container", "metric", "describedObject"}
    assert {field: source[field] for field in source if field in kept} == {
        field: given[field] for field in given if field in kept
    }


@pytest.mark.parametrize(
    ("spec", "reason", "message", "summary"),
    [
        (
            resource(averageUtilization=75),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: why",
            "failed to get cpu resource metric value: {}",
        ),
        (
            resource(averageValue="1"),
            "FailedGetResourceMetric",
            "failed to get cpu usage: unable to get metrics for resource cpu: why",
            "failed to get cpu resource metric value: {}",
        ),
        (
            resource(),
            "FailedGetResourceMetric",
            NO_TARGET,
            "failed to get cpu resource metric value: {}",
        ),
        (
            container(averageUtilization=75),
            "FailedGetContainerResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: why",
            "failed to get compute container metric value: {}",
        ),
        (
            metric("Pods", averageValue="1"),
            "FailedGetPodsMetric",
            "unable to get metric queue: why",
            "failed to get pods metric value: {}",
        ),
        (
            metric("Object", value="1"),
            "FailedGetObjectMetric",
            "unable to get metric queue on Service default/web: why",
            "failed to get object metric value: {}",
        ),
        (
            metric("Object", averageValue="1", type="AverageValue"),
            "FailedGetObjectMetric",
            "unable to get metric queue on Service default/web: why",
            "failed to get object metric value: failed to get queue object metric: {}",
        ),
        (
            metric("External", SELECTOR, value="1"),
            "FailedGetExternalMetric",
            f"unable to get external metric default/queue/{GO}: why",
            "failed to get queue external metric value: failed to get external metric queue: {}",
        ),
        (
            metric("External", averageValue="1"),
            "FailedGetExternalMetric",
            "unable to get external metric default/queue/nil: why",
            "failed to get queue external metric value: failed to get queue external metric: {}",
        ),
        (
            {"type": "CheddarCheese"},
            "InvalidMetricSourceType",
            'unknown metric source type "CheddarCheese"',
            "{}",
        ),
    ],
)
async def test_failures_have_kubernetes_messages(spec, reason, message, summary):
    with pytest.raises(InvalidMetric) as caught:
        await ask(spec, "why")
    refusal = caught.value
    assert (refusal.reason, refusal.message) == (reason, message)
    assert refusal.summary == summary.format(message)


async def test_a_metric_without_a_target_is_an_error():
    with pytest.raises(InvalidMetric) as caught:
        await ask(metric("External"), 5000)
    assert caught.value.message == (
        "invalid external metric source: neither a value target nor an average value target was set"
    )


@pytest.mark.parametrize(
    ("behavior", "tolerance"),
    [
        (None, Tolerance(0.1, 0.1)),
        ({"scaleUp": {}}, Tolerance(0.1, 0.1)),
        ({"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0"}}, Tolerance(0, 0.05)),
    ],
)
def test_the_tolerance_is_configurable(behavior, tolerance):
    spec = {"maxReplicas": 2, "scaleTargetRef": {"kind": "Set", "name": "web"}}
    document = {"spec": {**spec, **({"behavior": behavior} if behavior else {})}}
    assert tolerance_of(msgspec.convert(document, HorizontalPodAutoscaler)) == tolerance


@pytest.mark.looptime
async def test_metrics_are_requested_concurrently(looptime):
    class Slow(FixedMetrics):
        async def of_external(self, _namespace, _metric):
            await asyncio.sleep(10)
            return self.known()

    state = ScaleState(current=1, observed=1, pods=[], now=NOW)
    proposals = Proposals(Slow(3000), "default", "app=web", state)
    target = {"type": "AverageValue", "averageValue": "1"}
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
    specs = [queue, {"type": "Odd"}, queue]
    answers = await proposals.evaluate_all(msgspec.convert(specs, list[MetricSpec]))
    assert [type(each) for each in answers] == [MetricProposal, InvalidMetric, MetricProposal]
    assert looptime == 10
