"""Metrics of a Prometheus, as autoscalers read them."""

import asyncio
import gzip
import socket

import pytest
from tests.exposition import Scrape
from tests.unit.server.conftest import PODS, Asker
from tests.unit.server.metrics.custom.fake import FakePrometheus, vector

from corral.server.app import ApiServer
from corral.server.metrics.custom import Adapter, prometheus
from corral.store import Store

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
CUSTOM_1 = "/apis/custom.metrics.k8s.io/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
AGGREGATED = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
RULES = """
custom:
- metric: http_requests
  query: sum by (exported_pod) (rate(http_requests_total{$matchers}[1m]))
  label: exported_pod
  window: 1m
external:
- metric: queue_length
  query: max(queue_length{$matchers})
  namespaced: false
"""


@pytest.fixture
async def fake():
    async with FakePrometheus().serving() as fake:
        yield fake


@pytest.fixture
async def ask(fake, tmp_path):
    """Asks a server whose adapter has no rules of its own."""
    async with asking(fake, None) as ask:
        yield ask


class asking:  # noqa: N801 - reads as a word
    def __init__(self, fake, rules):
        self.adapter = Adapter.load(fake.url, rules)

    async def __aenter__(self):
        ask = Asker(ApiServer(Store.in_memory(), adapter=self.adapter))
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
        for name, instance in (("launcher-a", "a"), ("launcher-b", "b"), ("other", "")):
            labels = {"app": "web"} if instance else {}
            made = await ask("POST", PODS, pod(name, labels, instance))
            assert made.status == 201, made.text
        return ask

    async def __aexit__(self, *_):
        await self.adapter.aclose()


def pod(name: str, labels: dict[str, str], instance: str) -> dict:
    annotations = {"kubevirt.io/domain": instance} if instance else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "compute", "image": "i"}]},
    }


async def test_a_metric_of_pods_is_a_metric_value_list(ask, fake):
    fake.answer = lambda _: vector(({"pod": "launcher-a"}, 1.5), ({"pod": "launcher-b"}, 20))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/busy?labelSelector=app%3Dweb")
    assert answer.document == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": [
            {
                "describedObject": {
                    "kind": "Pod",
                    "namespace": "default",
                    "name": name,
                    "apiVersion": "v1",
                },
                "metric": {"name": "busy", "selector": None},
                "timestamp": "2026-01-01T00:00:00Z",
                "value": value,
            }
            for name, value in (("launcher-a", "1500m"), ("launcher-b", "20"))
        ],
    }
    (query,) = fake.queries
    names = r"launcher\\-a|launcher\\-b"
    assert query == f'sum by (pod) (busy{{namespace="default",pod=~"{names}"}})'


async def test_requests_of_metrics_are_counted_by_group(ask, fake):
    fake.answer = lambda _: vector(({}, 1))
    await ask("GET", f"{EXTERNAL}/length")
    await ask("GET", f"{CUSTOM}/namespaces/default/pods/nobody/busy")
    scrape = Scrape((await ask("GET", "/metrics")).text)
    labels = {"verb": "GET", "resource": "", "subresource": "", "scope": ""}
    for group, version, code in (
        ("external.metrics.k8s.io", "v1beta1", "200"),
        ("custom.metrics.k8s.io", "v1beta2", "404"),
    ):
        labels |= {"group": group, "version": version, "component": "apiserver"}
        assert scrape.value("apiserver_request_total", code=code, **labels) == 1


async def test_v1beta1_has_its_own_fields(ask, fake):
    fake.answer = lambda _: vector(({"pod": "other"}, 3))
    path = (
        f"{CUSTOM_1}/namespaces/default/pods/other/jobs_per_second?metricLabelSelector=verb%3DGET"
    )
    answer = await ask("GET", path)
    (item,) = answer["items"]
    assert answer["apiVersion"] == "custom.metrics.k8s.io/v1beta1"
    assert (item["metricName"], item["window"]) == ("jobs_per_second", 120)
    assert item["selector"] == {"matchLabels": {"verb": "GET"}}
    assert "metric" not in item
    conditions = 'namespace="default",verb="GET",pod=~"other"'
    assert fake.queries == [f"sum by (pod) (rate(jobs_total{{{conditions}}}[120s]))"]


async def test_metrics_of_vmis_are_found_by_the_annotation_of_the_pod(ask, fake):
    fake.answer = lambda _: vector(({"name": "a"}, 1), ({"name": "b"}, 2))
    metric = "kubevirt_vmi_network_receive_bytes_per_second"
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/{metric}?labelSelector=app")
    values = {one["describedObject"]["name"]: one["value"] for one in answer["items"]}
    assert values == {"launcher-a": "1", "launcher-b": "2"}
    counter = "kubevirt_vmi_network_receive_bytes_total"
    conditions = 'namespace="default",name=~"a|b"'
    assert fake.queries == [f"sum by (name) (rate({counter}{{{conditions}}}[120s]))"]


async def test_a_metric_of_a_vmi_is_that_of_all_its_pods(ask, fake):
    """Which of them goes, or has ended, is for the autoscaler to see."""
    await ask("POST", PODS, pod("launcher-a0", {"app": "web"}, "a"))
    fake.answer = lambda _: vector(({"name": "a"}, 1), ({"name": "b"}, 2))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/kubevirt_vmi_x")
    values = {one["describedObject"]["name"]: one["value"] for one in answer["items"]}
    assert values == {"launcher-a": "1", "launcher-a0": "1", "launcher-b": "2"}


async def test_a_metric_of_one_object_of_another_kind(ask, fake):
    made = await ask(
        "POST",
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
    )
    assert made.status == 201
    fake.answer = lambda _: vector(({"service": "web"}, 0.001))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/services/web/hits")
    (item,) = answer["items"]
    assert item["describedObject"]["kind"] == "Service"
    assert item["value"] == "1m"


async def test_a_metric_of_a_namespace(ask, fake):
    fake.answer = lambda _: vector(({}, 7))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/metrics/orders")
    (item,) = answer["items"]
    assert item["describedObject"] == {"kind": "Namespace", "name": "default", "apiVersion": "v1"}
    assert fake.queries == ['sum(orders{namespace="default"})']


async def test_a_metric_of_all_namespaces_at_once_is_rejected(fake, tmp_path):
    fake.answer = lambda _: vector(({}, 7))
    file = tmp_path / "rules.yaml"
    file.write_text(
        "custom: [{resource: namespaces, metric: orders, query: 'sum(orders{$matchers})', "
        "label: '', namespaceLabel: ''}]"
    )
    async with asking(fake, file) as ask:
        answer = await ask("GET", f"{CUSTOM}/namespaces/*/metrics/orders")
        assert answer.status == 400
        assert "a metric of a namespace needs the name of one namespace" in answer["message"]
        answer = await ask("GET", f"{CUSTOM}/namespaces/default/metrics/orders")
        assert [one["describedObject"]["name"] for one in answer["items"]] == ["default"]


@pytest.mark.parametrize("name", ["status", "finalize"])
async def test_external_metrics_can_have_any_name(ask, fake, name):
    fake.answer = lambda _: vector(({}, 7))
    answer = await ask("GET", f"{EXTERNAL}/{name}")
    assert [one["metricName"] for one in answer["items"]] == [name]


async def test_an_external_metric_has_a_value_per_series(ask, fake):
    fake.answer = lambda _: vector(({"queue": "x"}, 1), ({"queue": "y"}, 2.25))
    selector = "queue%20in%20(x,y),zone!=z,!old,kept"
    answer = await ask("GET", f"{EXTERNAL}/length?labelSelector={selector}")
    assert answer.document == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "length",
                "metricLabels": {"queue": queue},
                "timestamp": "2026-01-01T00:00:00Z",
                "value": value,
            }
            for queue, value in (("x", "1"), ("y", "2250m"))
        ],
    }
    conditions = ['namespace="default"', 'kept!=""', 'old=""', 'queue=~"x|y"', 'zone!="z"']
    assert fake.queries == [f"length{{{','.join(conditions)}}}"]


async def test_rules_of_a_file_are_used(fake, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    fake.answer = lambda query: vector(({"exported_pod": "other"} if "sum" in query else {}, 4))
    async with asking(fake, file) as ask:
        answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/http_requests")
        (item,) = answer["items"]
        assert (item["describedObject"]["name"], item["windowSeconds"]) == ("other", 60)
        await ask("GET", f"{EXTERNAL}/queue_length?labelSelector=a%3Db")
        assert fake.queries[1] == 'max(queue_length{a="b"})'
        legacy = await ask("GET", CUSTOM)
        assert legacy["resources"] == [
            {
                "name": "pods/http_requests",
                "singularName": "",
                "namespaced": True,
                "kind": "MetricValueList",
                "verbs": ["get"],
            }
        ]
        external = await ask("GET", EXTERNAL.partition("/namespaces")[0])
        assert external["resources"] == [
            {
                "name": "queue_length",
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
        ]
        groups = (await ask("GET", "/apis", headers=AGGREGATED))["items"]
        (listed,) = [one for one in groups if one["metadata"]["name"] == "external.metrics.k8s.io"]
        (resource,) = listed["versions"][0]["resources"]
        assert resource["resource"] == "queue_length"
        assert resource["responseKind"]["kind"] == "ExternalMetricValueList"
        assert resource["verbs"] == ["get"]


GROUPS = {"custom.metrics.k8s.io", "external.metrics.k8s.io"}


async def test_discovery_has_the_groups_only_with_an_adapter(ask):
    async def groups(asker) -> set[str]:
        old = await asker("GET", "/apis")
        new = await asker("GET", "/apis", headers=AGGREGATED)
        named = {each["metadata"]["name"] for each in new["items"]}
        assert named == {each["name"] for each in old["groups"]}
        return named

    without = Asker(ApiServer(Store.in_memory()))
    assert await groups(ask) - await groups(without) == GROUPS
    assert (await ask("GET", CUSTOM))["resources"] == []
    (group,) = [
        each for each in (await ask("GET", "/apis"))["groups"] if each["name"].startswith("custom")
    ]
    assert [each["version"] for each in group["versions"]] == ["v1beta2", "v1beta1"]
    for path in (CUSTOM, f"{CUSTOM}/namespaces/default/pods/*/x", f"{EXTERNAL}/x"):
        assert (await without("GET", path)).status == 404


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            f"{CUSTOM}/namespaces/default/pods/*/busy?labelSelector=app%3Dweb",
            "the server could not find the metric busy for pods * with selector app=web",
        ),
        (
            f"{CUSTOM}/namespaces/default/pods/missing/busy",
            "the server could not find the metric busy for pods missing",
        ),
        (
            f"{CUSTOM}/namespaces/default/no.such.kind/x/busy",
            "the server could not find the metric busy for no.such.kind x",
        ),
        (
            f"{CUSTOM}/pods/x/busy",
            "the server could not find the metric busy for pods x",
        ),
        (
            f"{CUSTOM}/namespaces/default/pods/other/not a name",
            "the server could not find the metric not a name for pods other",
        ),
        (f"{EXTERNAL}/busy", "the server could not find the metric busy for provided labels"),
    ],
)
async def test_metrics_without_series_are_not_found(ask, path, message):
    answer = await ask("GET", path)
    assert (answer.status, answer["reason"], answer["message"]) == (404, "NotFound", message)


@pytest.mark.parametrize(
    "value", ["NaN", "+Inf", "-Inf", "1e300", "9e18", "ten", "", "0x10p", "1" * 5000]
)
async def test_values_that_are_no_finite_numbers_are_left_out(ask, fake, value):
    fake.answer = lambda _: vector(({"pod": "launcher-a"}, value), ({"pod": "other"}, 1))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/busy")
    assert [one["describedObject"]["name"] for one in answer["items"]] == ["other"]


async def test_series_of_other_objects_are_left_out(ask, fake):
    fake.answer = lambda _: vector(({"pod": "stranger"}, 1), ({}, 1), ({"pod": "other"}, 1))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/busy")
    assert [one["describedObject"]["name"] for one in answer["items"]] == ["other"]


async def test_several_series_of_one_object_are_an_error_with_advice(ask, fake):
    fake.answer = lambda _: vector(({"pod": "other", "x": "1"}, 1), ({"pod": "other"}, 1))
    answer = await ask("GET", f"{CUSTOM}/namespaces/default/pods/*/busy")
    assert answer.status == 500
    assert "several series of default/other: add them up, as in sum by (pod)" in answer["message"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "with an invalid body"),
        (b"<html>", "with an invalid body"),
        (b"[" * 100_000, "with an invalid body"),
        (
            b'{"status": "success", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "does not answer",
        ),
        (b'{"status": "success"}', "HTTP 200"),
        (b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "matrix"),
        (vector(*[({"n": str(n)}, 1) for n in range(10_001)]), "10001 series"),
        (
            b'{"status": "success", "data": {"resultType": "vector", "result": [{}]}}',
            "missing required field",
        ),
        (b" " * (5 << 20), "answers with more than 4194304 bytes"),
    ],
    ids=["empty", "html", "deep", "deeper", "no data", "matrix", "many", "odd", "large"],
)
async def test_invalid_responses_of_prometheus_are_unavailable(ask, fake, body, why):
    fake.answer = lambda _: body
    answer = await ask("GET", f"{EXTERNAL}/busy")
    assert (answer.status, answer["reason"]) == (503, "ServiceUnavailable")
    assert why in answer["message"]
    assert fake.url in answer["message"]


async def test_compressed_responses_are_not_decompressed(ask, fake):
    fake.encoding = "gzip"
    fake.answer = lambda _: gzip.compress(vector(({}, 1)))
    answer = await ask("GET", f"{EXTERNAL}/busy")
    assert answer.status == 503
    assert "with an invalid body" in answer["message"]


async def test_samples_with_invalid_times_are_left_out(ask, fake):
    one = b'{"metric": {}, "value": [1e300, "1"]}'
    fake.answer = lambda _: (
        b'{"status": "success", "data": {"resultType": "vector", "result": [' + one + b"]}}"
    )
    assert (await ask("GET", f"{EXTERNAL}/busy")).status == 404


async def test_a_query_rejected_by_prometheus_is_an_internal_error(ask, fake):
    fake.status = "400 Bad Request"
    fake.answer = lambda _: (
        b'{"status": "error", "errorType": "bad_data", "error": "parse\\u001berror"}'
    )
    answer = await ask("GET", f"{EXTERNAL}/busy")
    assert answer.status == 500
    assert answer["message"].endswith('refuses the query busy{namespace="default"}: parseerror')


async def test_an_unreachable_prometheus_is_named(tmp_path):
    gone = FakePrometheus()
    with socket.socket() as taken:  # so that nobody else answers there
        taken.bind(("127.0.0.1", 0))
        gone.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with asking(gone, None) as ask:
            answer = await ask("GET", f"{EXTERNAL}/busy")
    assert (answer.status, answer["reason"]) == (503, "ServiceUnavailable")
    assert answer["message"].startswith(f"Prometheus at {gone.url} does not answer: ")


async def test_a_hanging_prometheus_times_out(ask, fake, monkeypatch):
    monkeypatch.setattr(prometheus, "TIMEOUT_SECONDS", 0.2)
    fake.silent = True
    async with asyncio.timeout(60):
        answer = await ask("GET", f"{EXTERNAL}/busy")
    assert answer.status == 503
    assert answer["message"] == f"Prometheus at {fake.url} does not answer within 0.2 s"


async def test_metrics_are_for_administrators_and_the_autoscaler(ask, fake):
    fake.answer = lambda _: vector(({}, 1))
    for name, status in (
        ("system:kube-controller-manager", 200),
        ("system:serviceaccount:default:default", 403),
        ("system:node:vm", 403),
    ):
        assert (await ask.as_user(name)("GET", f"{EXTERNAL}/busy")).status == status
    as_loop = {"impersonate-user": "system:serviceaccount:kube-system:x"}
    assert (await ask("GET", f"{EXTERNAL}/busy", headers=as_loop)).status == 403


async def test_metrics_are_read_only(ask):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = await ask(method, f"{EXTERNAL}/busy", {})
        assert (answer.status, answer["reason"]) == (405, "MethodNotAllowed")
