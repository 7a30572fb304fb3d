"""Usage of pods at the kubelet's endpoints, as metrics-server and Prometheus read it."""

import asyncio
from datetime import UTC, datetime

import pytest
from lightkube.models.core_v1 import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from lightkube.models.meta_v1 import ObjectMeta
from starlette.applications import Starlette
from starlette.testclient import TestClient

from corral.node.hypervisor import Usage
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.sampling.sampler import RunningPod, Sampler
from corral.node.state.facts import Facts, State

NOW = 1_790_000_000.0
STARTED = datetime(2026, 9, 21, 14, 0, tzinfo=UTC)
LABELS = 'namespace="default",pod="busy"'
MILLIS = NOW * 1000


class Guest:
    taken = 5 * 10**9

    def usage(self):
        return Usage(self.taken, 64 << 20)


class Machine:
    def __init__(self):
        self.guest = Guest()
        self.facts = Facts(state=State.RUNNING)


def pod():
    running = ContainerState(running=ContainerStateRunning(startedAt=STARTED))
    status = ContainerStatus(
        name="compute", state=running, image="", imageID="", ready=True, restartCount=0
    )
    return Pod(
        metadata=ObjectMeta(name="busy", namespace="default", uid="uid-1"),
        spec=PodSpec(containers=[Container(name="compute"), Container(name="volumedisk")]),
        status=PodStatus(containerStatuses=[status]),
    )


@pytest.fixture
def seen():
    """A node whose one guest was looked at twice; ``seen.machine`` is that guest's."""
    machine = Machine()
    host = iter((Usage(0, 1 << 30), Usage(4 * 10**9, 1 << 30)))
    sampler = Sampler(host=lambda: next(host), clock=lambda: NOW)
    sampler.add("here", lambda: [RunningPod(pod(), machine)])

    async def look():
        sampler.sample()
        await asyncio.sleep(0.01)
        machine.guest.taken += 2 * 10**9
        sampler.sample()

    asyncio.run(look())
    app = Starlette(routes=ResourceEndpoints("here", sampler).routes())
    with TestClient(app) as client:
        client.machine = machine
        yield client


def test_metrics_have_the_names_of_a_kubelet_and_the_time_of_the_sample(seen):
    answer = seen.get("/metrics/resource")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    samples = {line.split()[0]: tuple(map(float, line.split()[1:])) for line in lines}
    del samples['corral_scrape_failures_total{source="resource"}']
    assert samples == {
        f'container_cpu_usage_seconds_total{{container="compute",{LABELS}}}': (7, MILLIS),
        f'container_memory_working_set_bytes{{container="compute",{LABELS}}}': (64 << 20, MILLIS),
        f'container_start_time_seconds{{container="compute",{LABELS}}}': (STARTED.timestamp(),),
        f"pod_cpu_usage_seconds_total{{{LABELS}}}": (7, MILLIS),
        f"pod_memory_working_set_bytes{{{LABELS}}}": (64 << 20, MILLIS),
        "node_cpu_usage_seconds_total": (4, MILLIS),
        "node_memory_working_set_bytes": (1 << 30, MILLIS),
        "scrape_error": (0,),
        "resource_scrape_error": (0,),
    }
    assert "# TYPE container_cpu_usage_seconds_total counter" in answer.text
    assert "# TYPE pod_memory_working_set_bytes gauge" in answer.text


def test_the_summary_has_the_same_values_in_json(seen):
    answer = seen.get("/stats/summary").json()
    assert answer["node"]["nodeName"] == "here"
    assert answer["node"]["cpu"]["usageCoreNanoSeconds"] == 4 * 10**9
    assert answer["node"]["memory"]["workingSetBytes"] == 1 << 30
    (usage,) = answer["pods"]
    assert usage["podRef"] == {"name": "busy", "namespace": "default", "uid": "uid-1"}
    assert usage["startTime"] == "2026-09-21T14:00:00Z"
    (container,) = usage["containers"]
    assert container["name"] == "compute"
    assert container["cpu"]["usageCoreNanoSeconds"] == 7 * 10**9
    assert container["cpu"]["usageNanoCores"] > 0
    assert container["memory"]["workingSetBytes"] == 64 << 20


def test_finished_machines_are_in_no_endpoint(seen):
    seen.machine.facts = Facts(state=State.ENDED)
    assert "busy" not in seen.get("/metrics/resource").text
    assert seen.get("/stats/summary").json()["pods"] == []


def test_a_node_without_samples_has_no_usage():
    app = Starlette(routes=ResourceEndpoints("here", Sampler()).routes())
    with TestClient(app) as client:
        text = client.get("/metrics/resource").text
        assert "scrape_error 0.0" in text
        assert "_bytes" not in "\n".join(line for line in text.splitlines() if line[0] != "#")
        assert client.get("/stats/summary").json() == {"node": {"nodeName": "here"}, "pods": []}
