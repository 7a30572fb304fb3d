"""Usage of nodes on other hosts: read at once, for a few seconds, and never waited for long."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.metrics import remote_usage
from corral.store import Store

PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
SPEC = {"containers": [{"name": "compute", "image": "guest"}, {"name": "log", "image": "guest"}]}


def stats(nanocores, size, **more):
    moment = "2026-01-01T00:00:15Z"
    return more | {
        "cpu": {"time": moment, "usageNanoCores": nanocores, "usageCoreNanoSeconds": 1},
        "memory": {"time": moment, "workingSetBytes": size},
    }


class Kubelet:
    """The summary of a node, as a kubelet serves it."""

    def __init__(self):
        self.node = stats(1_500_000_000, 1 << 30, nodeName="far")
        self.pods = []
        self.requests = 0
        self.delay = 0.0
        self.answer = None
        self.app = Starlette(routes=[Route("/stats/summary", self._summary)])

    def add(self, name, uid, nanocores):
        reference = {"name": name, "namespace": "default", "uid": uid}
        containers = [stats(nanocores, 2 << 20, name="compute")]
        self.pods.append(stats(nanocores, 2 << 20, podRef=reference, containers=containers))

    async def _summary(self, _request):
        self.requests += 1
        await asyncio.sleep(self.delay)
        return self.answer or JSONResponse({"node": self.node, "pods": self.pods})


class Rig:
    """A server with the node ``near`` on its own host, and ``far`` and ``farther`` on others."""

    def __init__(self, store, ask, kubelets):
        self.store, self.ask, self.kubelets = store, ask, kubelets

    async def pod(self, name, node, nanocores=250_000_000):
        spec = SPEC | {"nodeName": node}
        made = await self.ask.create("/api/v1/namespaces/default/pods", name, spec=spec)
        self.kubelets[node].add(name, made["metadata"]["uid"], nanocores)


@pytest.fixture
async def rig(asker):
    store = Store.in_memory()
    kubelets = {"far": Kubelet(), "farther": Kubelet()}
    server = ApiServer(
        store,
        authenticator=Authenticator({"secret": ADMINISTRATOR}),
        remote_nodes=lambda name: kubelets[name].app if name in kubelets else None,
    )
    ask = asker(server)
    await ask.create("/api/v1/namespaces", "default")
    for name in ("near", *kubelets):
        await ask.create("/api/v1/nodes", name)
    yield Rig(store, ask, kubelets)
    await store.close()


async def test_joined_nodes_and_their_pods_are_listed(rig):
    await rig.pod("busy", "far")
    answer = await rig.ask("GET", NODES)
    assert answer.names == ["far", "farther"]
    assert answer["items"][0]["usage"] == {"cpu": "1500m", "memory": "1Gi"}
    pod = await rig.ask("GET", f"{PODS}/busy")
    assert (pod["timestamp"], pod["window"]) == ("2026-01-01T00:00:15Z", "15s")
    assert {each["name"]: each["usage"]["cpu"] for each in pod["containers"]} == {
        "compute": "250m",
        "log": "0",
    }


async def test_one_summary_serves_the_requests_of_a_few_seconds(rig):
    await rig.pod("busy", "far")
    for _ in range(3):
        await rig.ask("GET", PODS)
        await rig.ask("GET", f"{NODES}/far")
    assert rig.kubelets["far"].requests == 1
    assert rig.kubelets["farther"].requests == 0  # no pod and no request names it


async def test_concurrent_requests_share_a_summary(rig):
    rig.kubelets["far"].delay = 0.05
    answers = await asyncio.gather(*(rig.ask("GET", f"{NODES}/far") for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert rig.kubelets["far"].requests == 1


async def test_a_hanging_node_is_left_out_and_not_awaited_again(rig, monkeypatch):
    monkeypatch.setattr(remote_usage, "DEADLINE_SECONDS", 0.5)
    rig.kubelets["far"].delay = 3600
    async with asyncio.timeout(60):
        assert (await rig.ask("GET", NODES)).names == ["farther"]
        monkeypatch.setattr(remote_usage, "DEADLINE_SECONDS", 3600)
        assert (await rig.ask("GET", NODES)).names == ["farther"]
    assert rig.kubelets["far"].requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        Response(b"Forbidden", status_code=403),
        Response(b"not JSON"),
        JSONResponse({"node": {"cpu": {"time": "yesterday", "usageNanoCores": 1}}}),
        JSONResponse({"node": stats(-1, 1)}),
        JSONResponse({"node": stats(1 << 70, 1)}),
        Response(b" " * (remote_usage.LARGEST_SUMMARY + 1)),
    ],
    ids=["refused", "no-json", "no-time", "negative", "too-large-number", "too-many-bytes"],
)
async def test_an_invalid_summary_affects_that_node_only(rig, answer):
    rig.kubelets["far"].answer = answer
    assert (await rig.ask("GET", NODES)).names == ["farther"]


async def test_a_node_without_a_rate_has_no_metrics(rig):
    rig.kubelets["far"].node = {"nodeName": "far"}
    assert (await rig.ask("GET", f"{NODES}/far")).status == 404


async def test_a_node_reports_usage_of_its_own_pods_only(rig):
    await rig.pod("busy", "far")
    pods = rig.kubelets["far"].pods
    rig.kubelets["farther"].pods = [each | stats(1, 1) for each in pods]
    rig.kubelets["farther"].pods[0]["containers"] = [stats(9_000_000_000, 1, name="compute")]
    await rig.ask("GET", NODES)  # both are read
    pod = await rig.ask("GET", f"{PODS}/busy")
    assert pod["containers"][0]["usage"]["cpu"] == "250m"
