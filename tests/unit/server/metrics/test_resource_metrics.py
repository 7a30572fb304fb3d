"""What is answered of the moment: whom it is about, and what nobody knows anything of."""

import pytest

from corral.api.kinds.usage import ContainerMetrics, NodeMetrics, PodMetrics
from corral.api.object import ObjectMeta
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.store import Store

PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
ALL_PODS = "/apis/metrics.k8s.io/v1beta1/pods"
NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
SPEC = {"containers": [{"name": "compute", "image": "guest"}]}


def pod_metrics(key):
    """Of ``idle`` nothing is known yet."""
    if key.name == "idle":
        return None
    return PodMetrics(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        timestamp="2026-01-01T00:00:15Z",
        window="15s",
        containers=[
            ContainerMetrics(name="compute", usage={"cpu": "250000000n", "memory": "2048Ki"}),
            ContainerMetrics(name="guest-console-log", usage={"cpu": "0", "memory": "0"}),
        ],
    )


def node_metrics(key):
    return NodeMetrics(
        metadata=ObjectMeta(name=key.name),
        timestamp="2026-01-01T00:00:15Z",
        window="15s",
        usage={"cpu": "1500m", "memory": "1Gi"},
    )


@pytest.fixture
async def served(asker):
    store = Store.in_memory()
    server = ApiServer(
        store,
        authenticator=Authenticator({"secret": ADMINISTRATOR}),
        observed={"pods.metrics.k8s.io": pod_metrics, "nodes.metrics.k8s.io": node_metrics},
    )
    ask = asker(server)
    for namespace in ("default", "other"):
        await ask.create("/api/v1/namespaces", namespace)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        await ask.create(pods, "busy", labels={"app": namespace}, spec=SPEC)
    await ask.create("/api/v1/namespaces/default/pods", "idle", spec=SPEC)
    await ask.create("/api/v1/nodes", "here")
    yield ask
    await store.close()


async def test_pod_metrics_have_labels_and_all_containers(served):
    answer = await served("GET", f"{PODS}/busy")
    assert answer["kind"] == "PodMetrics"
    assert answer["apiVersion"] == "metrics.k8s.io/v1beta1"
    assert answer["metadata"]["labels"] == {"app": "default"}
    assert (answer["timestamp"], answer["window"]) == ("2026-01-01T00:00:15Z", "15s")
    assert [one["name"] for one in answer["containers"]] == ["compute", "guest-console-log"]
    assert answer["containers"][0]["usage"] == {"cpu": "250000000n", "memory": "2048Ki"}


async def test_unknown_usage_is_left_out_of_lists(served):
    assert (await served("GET", PODS)).names == ["busy"]


async def test_lists_are_filtered_by_namespace_and_labels_of_pods(served):
    assert (await served("GET", ALL_PODS)).names == ["busy", "busy"]
    chosen = await served("GET", f"{ALL_PODS}?labelSelector=app%3Dother")
    assert [one["metadata"]["namespace"] for one in chosen["items"]] == ["other"]
    assert (await served("GET", f"{ALL_PODS}?fieldSelector=metadata.name%3Didle")).names == []


async def test_a_missing_pod_and_one_without_metrics_have_different_errors(served):
    missing = await served("GET", f"{PODS}/nobody")
    assert (missing.status, missing["message"]) == (404, 'pods "nobody" not found')
    unknown = await served("GET", f"{PODS}/idle")
    assert unknown.status == 404
    assert unknown["message"] == 'podmetrics.metrics.k8s.io "default/idle" not found'


async def test_node_metrics(served):
    assert (await served("GET", NODES)).names == ["here"]
    answer = await served("GET", f"{NODES}/here")
    assert answer["usage"] == {"cpu": "1500m", "memory": "1Gi"}
    missing = await served("GET", f"{NODES}/there")
    assert missing["message"] == 'nodes "there" not found'


async def test_tables_have_the_sum_of_containers(served):
    answer = await served("GET", PODS, headers=TABLE)
    assert [one["name"] for one in answer["columnDefinitions"]] == [
        *("Name", "cpu", "memory", "Window"),
    ]
    assert answer["rows"][0]["cells"] == ["busy", "250m", "2Mi", "15s"]
    nodes = await served("GET", NODES, headers=TABLE)
    assert nodes["rows"][0]["cells"] == ["here", "1500m", "1Gi", "15s"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", PODS), ("DELETE", PODS), ("DELETE", f"{PODS}/busy"), ("PUT", f"{PODS}/busy")),
        *(("PATCH", f"{PODS}/busy"), ("GET", f"{PODS}?watch=true"), ("DELETE", NODES)),
    ],
)
async def test_metrics_cannot_be_written_or_watched(served, method, path):
    assert (await served(method, path, {})).status == 405
    assert (await served("GET", PODS)).names == ["busy"]


async def test_discovery_has_get_and_list_only(served):
    answer = await served("GET", "/apis/metrics.k8s.io/v1beta1")
    assert {one["name"]: one["verbs"] for one in answer["resources"]} == {
        "pods": ["get", "list"],
        "nodes": ["get", "list"],
    }


async def test_an_invalid_selector_is_rejected(served):
    assert (await served("GET", f"{PODS}?labelSelector=a%3D%3D%3Db")).status == 400
    assert (await served("GET", f"{PODS}?limit=many")).status == 400


async def test_a_server_without_sources_has_no_metrics(asker):
    store = Store.in_memory()
    ask = asker(ApiServer(store))
    await ask.create("/api/v1/nodes", "here")
    assert (await ask("GET", NODES)).names == []
    assert (await ask("GET", f"{NODES}/here")).status == 404
    await store.close()
