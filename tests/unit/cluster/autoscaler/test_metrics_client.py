"""Metrics that the autoscaler reads, and those that it does not trust."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from lightkube.models.autoscaling_v2 import CrossVersionObjectReference, MetricIdentifier
from lightkube.models.meta_v1 import LabelSelector, LabelSelectorRequirement

from corral.api.errors import NotFound, Unavailable
from corral.api.kinds import KINDS
from corral.api.request import Request, Response
from corral.client.client import Client
from corral.cluster.autoscaler.metrics_client import (
    MAX_CONCURRENT,
    QUEUE_SECONDS,
    TIMEOUT_SECONDS,
    MetricsClient,
)
from corral.cluster.autoscaler.replicas import MetricError, Sample

MOMENT = "2026-01-01T12:00:00Z"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUEUE = MetricIdentifier(name="queue")


class Answering:
    """A transport that gives one answer, and records the requests."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.requests: list[str] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(f"{request.path}?{request.query}" if request.query else request.path)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.sleep(3600)
        return Response(status=200, body=msgspec.json.encode(self.answer))


def metrics(answer) -> tuple[MetricsClient, Answering]:
    transport = Answering(answer)
    return MetricsClient(Client(transport), KINDS), transport


def pod(name: str, *usages, timestamp: str = MOMENT, window: str = "15s") -> dict:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "timestamp": timestamp,
        "window": window,
        "containers": [
            {"name": container, "usage": usage}
            for container, usage in zip(("compute", "guest-console-log"), usages, strict=False)
        ],
    }


async def of_pods(*items, resource: str = "cpu", container: str = "") -> dict[str, Sample]:
    answer = {"metadata": {"resourceVersion": ""}, "items": items}
    return await metrics(answer)[0].of_pods("default", "app=web", resource, container)


async def test_usage_of_containers_is_summed():
    found = await of_pods(pod("a", {"cpu": "283123456n"}, {"cpu": "0"}), pod("b", {"cpu": "1"}))
    window = timedelta(seconds=15)
    assert found == {"a": Sample(284, NOON, window), "b": Sample(1000, NOON, window)}


async def test_usage_of_one_container():
    one = pod("a", {"cpu": "1"}, {"cpu": "5m"})
    found = await of_pods(one, container="guest-console-log")
    assert found["a"].value == 5
    with pytest.raises(MetricError) as caught:
        await of_pods(one, container="other")
    text = "container other not present in metrics for pod default/a"
    assert str(caught.value) == f"failed to get container metrics: {text}"


@pytest.mark.parametrize("value", ["NaN", "-1", "inf", "", "1e30000", "abc", -0.5])
async def test_invalid_pod_metrics_are_left_out(value):
    found = await of_pods(pod("a", {"cpu": value}), pod("b", {"cpu": "1"}))
    assert "a" not in found
    assert found["b"].value == 1000


@pytest.mark.parametrize("fields", [{"timestamp": "yesterday"}, {"window": "soon"}])
async def test_pod_metrics_without_a_timestamp_are_left_out(fields):
    assert await of_pods(pod("a", {"cpu": "1"}, **fields)) == {}


async def test_pod_metrics_without_the_resource_are_left_out():
    assert await of_pods(pod("a", {"cpu": "1"}, {}), pod("b")) == {}


async def test_no_metrics_are_an_error():
    with pytest.raises(MetricError, match=r"^no metrics returned from resource metrics API$"):
        await of_pods()


def values(*items) -> dict:
    return {"items": [{"value": "1", "timestamp": MOMENT, **item} for item in items]}


async def test_custom_metrics_of_pods_are_requested_by_labels():
    known, transport = metrics(
        values(
            {"describedObject": {"kind": "Pod", "name": "a"}, "value": "2500m"},
            {"describedObject": {"name": "b"}, "windowSeconds": 30},
            {"describedObject": {"name": "c"}, "value": "-1"},
        )
    )
    selector = LabelSelector(
        matchLabels={"code": "500"},
        matchExpressions=[LabelSelectorRequirement(key="verb", operator="Exists")],
    )
    metric = MetricIdentifier(name="hits/sec", selector=selector)
    found = await known.of_custom("default", "app=web", metric)
    assert found == {
        "a": Sample(2500, NOON, timedelta(minutes=1)),
        "b": Sample(1000, NOON, timedelta(seconds=30)),
    }
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/hits%2Fsec"
    query = "labelSelector=app%3Dweb&metricLabelSelector=code%3D500%2Cverb"
    assert transport.requests == [f"{path}?{query}"]


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        (("v1", "Service", "web"), "services/web"),
        (("v1", "Namespace", "other"), "metrics"),
        (
            ("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet", "../set"),
            "virtualmachineinstancereplicasets.kubevirt.io/..%2Fset",
        ),
    ],
)
async def test_metrics_of_an_object_are_requested_in_its_namespace(reference, path):
    known, transport = metrics(values({"value": "3"}))
    api_version, kind, name = reference
    described = CrossVersionObjectReference(apiVersion=api_version, kind=kind, name=name)
    assert await known.of_object("default", described, QUEUE) == 3000
    root = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default"
    assert transport.requests == [f"{root}/{path}/queue"]


async def test_objects_of_unknown_kinds_have_no_metrics():
    known, _ = metrics(values())
    described = CrossVersionObjectReference(apiVersion="apps/v1", kind="Blimp", name="web")
    with pytest.raises(MetricError) as caught:
        await known.of_object("default", described, QUEUE)
    assert 'no matches for kind "Blimp" in group "apps"' in str(caught.value)


async def test_values_of_external_metrics_are_summed():
    known, transport = metrics(values({"value": "3"}, {"value": "4500m"}))
    assert await known.of_external("default", QUEUE) == 7500
    assert transport.requests == ["/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue"]


@pytest.mark.parametrize("value", ["NaN", "-3", "9223372036854775808", "+Inf", ""])
async def test_an_invalid_sum_is_an_error(value):
    known, _ = metrics(values({"value": value}, {"value": "4"}))
    with pytest.raises(MetricError, match="the value of the metric is"):
        await known.of_external("default", QUEUE)


@pytest.mark.parametrize("answer", [{"items": 5}, {"items": [{"timestamp": MOMENT}]}, [], "x"])
async def test_a_response_of_another_kind_is_an_error(answer):
    known, _ = metrics(answer)
    with pytest.raises(MetricError, match="unable to fetch metrics from external metrics API"):
        await known.of_external("default", QUEUE)


async def test_objects_without_metrics_are_named():
    known, _ = metrics(values())
    with pytest.raises(MetricError, match=r"^no metrics returned from external metrics API$"):
        await known.of_external("default", QUEUE)
    known, _ = metrics(Unavailable("it is down"))
    with pytest.raises(MetricError) as caught:
        await known.of_pods("default", "app=web", "cpu")
    assert str(caught.value) == "unable to fetch metrics from resource metrics API: it is down"


async def test_a_missing_metrics_api_is_reported():
    known, _ = metrics(NotFound("404 page not found"))
    with pytest.raises(MetricError) as caught:
        await known.of_custom("default", "app=web", QUEUE)
    text = "no custom metrics API (custom.metrics.k8s.io) registered"
    assert str(caught.value) == f"unable to fetch metrics from custom metrics API: {text}"


@pytest.mark.looptime
async def test_a_silent_metrics_api_times_out():
    known, _ = metrics(None)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(MetricError, match="no answer within 10 seconds"):
        await known.of_external("default", QUEUE)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(TIMEOUT_SECONDS)


@pytest.mark.looptime
async def test_pending_requests_to_a_hanging_api_are_limited(looptime):
    known, transport = metrics(None)
    asking = [
        asyncio.ensure_future(known.of_external("default", QUEUE)) for _ in range(MAX_CONCURRENT)
    ]
    await asyncio.sleep(0)
    with pytest.raises(MetricError) as caught:
        await known.of_external("default", QUEUE)
    assert looptime == QUEUE_SECONDS
    text = f"{MAX_CONCURRENT} other requests are waiting for it"
    assert str(caught.value) == f"unable to fetch metrics from external metrics API: {text}"
    assert len(transport.requests) == MAX_CONCURRENT
    # Another API is another matter.
    with pytest.raises(MetricError, match="no answer within 10 seconds"):
        await known.of_custom("default", "app=web", QUEUE)
    await asyncio.wait(asking)
    with pytest.raises(MetricError, match="no answer within 10 seconds"):
        await known.of_external("default", QUEUE)
    for each in asking:
        assert isinstance(each.exception(), MetricError)
