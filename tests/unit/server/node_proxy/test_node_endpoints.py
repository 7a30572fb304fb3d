"""Endpoints of nodes: forwarding and authorization of requests."""

import pytest

from corral.server.app import ApiServer
from corral.server.node_proxy.forwarding import Forward
from corral.store import Store

NODE = "/api/v1/nodes/here/proxy"


@pytest.fixture
async def ask(asker):
    """A server with the nodes ``here`` and ``silent``, of which only the first has an agent."""

    async def agent(scope, receive, send): ...

    store = Store.in_memory()
    server = ApiServer(store, nodes={"here": agent}.get)
    client = asker(server)
    for name in ("here", "silent"):
        await client.create("/api/v1/nodes", name)
    yield client
    await store.close()


@pytest.mark.parametrize("path", ["/metrics", "/metrics/resource", "/stats/summary"])
async def test_metrics_of_a_node_are_proxied_to_its_kubelet(ask, path):
    answer = await ask.raw("GET", f"{NODE}{path}?only_cpu_and_memory=true")
    assert isinstance(answer, Forward)
    assert (answer.path, answer.query) == (path, "only_cpu_and_memory=true")


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/pods", "/containerLogs/default/pod/compute", "/exec/default/pod/compute"),
        *("/metrics/resource/..", "/metrics/../exec/default/pod/compute", "/metrics/cadvisor"),
    ],
)
async def test_other_paths_of_a_kubelet_are_not_proxied(ask, path):
    assert (await ask("GET", f"{NODE}{path}")).status == 404


async def test_a_missing_and_an_unreachable_node_have_different_errors(ask):
    missing = await ask("GET", "/api/v1/nodes/nobody/proxy/metrics/resource")
    assert (missing.status, missing["message"]) == (404, 'nodes "nobody" not found')
    silent = await ask("GET", "/api/v1/nodes/silent/proxy/metrics/resource")
    assert silent.status == 503
    assert silent["message"] == 'the agent of node "silent" cannot be reached'


async def test_the_node_proxy_is_read_only(ask):
    for method in ("POST", "PUT", "DELETE"):
        assert (await ask(method, f"{NODE}/metrics")).status == 405


@pytest.mark.parametrize(
    ("user", "status"),
    [
        ("system:serviceaccount:kubevirt:kubevirt-controller", 403),
        ("system:node:here", 403),
        ("jane", 403),
    ],
)
async def test_only_administrators_can_use_the_node_proxy(ask, user, status):
    answer = await ask.as_user(user)("GET", f"{NODE}/metrics/resource")
    assert answer.status == status
    assert "nodes/proxy" in answer["message"]


async def test_discovery_has_kubernetes_proxy_paths(ask):
    found = await ask("GET", "/api/v1")
    (proxy,) = (one for one in found["resources"] if one["name"] == "nodes/proxy")
    assert (proxy["kind"], proxy["verbs"]) == ("NodeProxyOptions", ["get"])
