"""Autoscalers that go by a Prometheus, in virtual time: it answers, talks nonsense, and is away."""

import asyncio
import json
from urllib.parse import parse_qs

import pytest
from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler as Autoscaler
from tests.sim.cluster import EPOCH, Cluster, cluster, replica_set

from corral.api.errors import Unavailable
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.server.metrics.custom import Adapter
from corral.server.metrics.custom.metric_rules import Rules

pytestmark = pytest.mark.looptime

SYNCED = 20.0
"""Seconds in which every autoscaler is looked at."""
SHRUNK = 400.0
"""Seconds after which what was recommended before is forgotten."""
TARGET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "test",
}
METRIC = "kubevirt_vmi_jobs"


class Prometheus:
    """Knows how many jobs there are, which machines share evenly; None while it is away."""

    def __init__(self, jobs: int | str) -> None:
        self.jobs: int | str | None = jobs

    async def post(self, _path: str, body: bytes, **_how: object) -> tuple[int, bytes]:
        if self.jobs is None:
            raise Unavailable("Prometheus at http://prometheus does not answer: it is away")
        (query,) = parse_qs(body.decode())["query"]
        assert query.startswith(f'sum by (name) ({METRIC}{{namespace="default",name=~"')
        names = query.partition('name=~"')[2].partition('"')[0].split("|")
        moment = EPOCH.timestamp() + asyncio.get_running_loop().time()
        value = self.jobs if isinstance(self.jobs, str) else str(self.jobs / len(names))
        result = [{"metric": {"name": name}, "value": [moment, value]} for name in names]
        data = {"resultType": "vector", "result": result}
        return 200, json.dumps({"status": "success", "data": data}).encode()


async def begin(c: Cluster, prometheus: Prometheus) -> None:
    """Two machines, and an autoscaler that wants ten jobs for each."""
    c.server._adapter = Adapter(prometheus, Rules())
    await c.client.create(ReplicaSet, replica_set("test", 2))
    await c.until_ready("test", 2)
    target = {"type": "AverageValue", "averageValue": "10"}
    spec = {
        "scaleTargetRef": TARGET,
        "minReplicas": 1,
        "maxReplicas": 8,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": target}}],
    }
    await c.client.create(
        Autoscaler, {"metadata": {"name": "jobs", "namespace": "default"}, "spec": spec}
    )


async def replicas(c: Cluster) -> int:
    return (await c.replica_set("test")).spec.replicas


async def test_a_set_is_scaled_by_a_metric_of_prometheus():
    async with cluster() as c:
        prometheus = Prometheus(40)
        await begin(c, prometheus)
        await asyncio.sleep(SYNCED)
        assert await replicas(c) == 4
        prometheus.jobs = 5
        await asyncio.sleep(SYNCED)
        assert await replicas(c) == 4  # for as long as more was recommended a moment ago
        await asyncio.sleep(SHRUNK)
        assert await replicas(c) == 1


@pytest.mark.parametrize("value", [None, "NaN", "-Inf", "+Inf", "1e300", "many"])
async def test_a_missing_metric_scales_no_set(value):
    async with cluster() as c:
        prometheus = Prometheus(20)
        await begin(c, prometheus)
        await asyncio.sleep(SYNCED)
        assert await replicas(c) == 2
        prometheus.jobs = value
        await asyncio.sleep(SHRUNK)
        assert await replicas(c) == 2
        (status,) = [
            one.status
            for one in (await c.client.list(Autoscaler, "default")).items
            if one.metadata.name == "jobs"
        ]
        active = {one.type: one for one in status.conditions}["ScalingActive"]
        assert (active.status, active.reason) == ("False", "FailedGetPodsMetric")
