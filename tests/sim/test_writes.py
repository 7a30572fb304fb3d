"""Writes in the life of a machine: each costs the manager most of a millisecond.

A figure that grows here is a thousand writes more for each thousand machines.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from lightkube.models.core_v1 import Pod
from tests.sim.cluster import Cluster, cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.request import Request, Response
from corral.reconcile.objects import key_of
from corral.server.app import ApiServer

pytestmark = pytest.mark.looptime

MACHINES = 30
"""More than the events of one set that are written at once."""
OF_MACHINES = Machine, "virtualmachineinstances.kubevirt.io"


def written(c: Cluster, since: int) -> Counter[str]:
    """Return the number of writes of each kind."""
    kinds = (OF_MACHINES[1], "pods", "events")
    return Counter({kind: len(c.server.store.changes(kind, since)) for kind in kinds})


async def scaled(c: Cluster, count: int) -> Counter[str]:
    """Return the writes until a set has so many machines and its status is complete."""
    since = c.server.store.revision
    await c.scale("test", count)
    await c.until_ready("test", count)
    await asyncio.sleep(10)
    return written(c, since)


async def test_a_vmi_is_written_three_times_until_ready_and_three_times_until_gone():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 0))
        up = await scaled(c, MACHINES)
        assert up[OF_MACHINES[1]] == 3 * MACHINES  # made, Scheduled, Running and Ready
        assert up["pods"] == 3 * MACHINES  # made, bound, running
        assert up["events"] <= 4 * MACHINES + 10  # of the pod 2, of the guest 2, and of the set
        down = await scaled(c, 0)
        assert down[OF_MACHINES[1]] == 3 * MACHINES  # marked, Succeeded, gone
        assert down["pods"] == MACHINES
        assert down["events"] <= 2 * MACHINES + 10


async def test_a_pod_whose_creation_takes_long_counts_as_new(monkeypatch):
    handle = ApiServer.handle

    async def slow(server: ApiServer, request: Request) -> Response:
        if request.method == "POST" and request.path.endswith("/pods"):
            await asyncio.sleep(2)  # as where a webhook is called
        return await handle(server, request)

    monkeypatch.setattr(ApiServer, "handle", slow)
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 0))
        up = await scaled(c, MACHINES)
        assert up[OF_MACHINES[1]] == 3 * MACHINES  # made, Scheduled, Running and Ready


async def test_deleted_objects_are_not_requested_again(monkeypatch):
    requested: Counter[str] = Counter()
    handle = ApiServer.handle

    async def count(server: ApiServer, request: Request) -> Response:
        if "watch=" not in request.query:
            requested[f"{request.method} {request.path.split('/')[-2]}"] += 1
        return await handle(server, request)

    monkeypatch.setattr(ApiServer, "handle", count)
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 0))
        await scaled(c, 3)
        requested.clear()
        await scaled(c, 0)
        assert requested["DELETE pods"] == 3
        assert requested["GET pods"] == 0


async def test_a_pod_is_removed_once_however_late_its_event_arrives(monkeypatch):
    statuses: Counter[int] = Counter()
    handle = ApiServer.handle

    async def late(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await asyncio.sleep(3)
            yield chunk

    async def with_late_pods(server: ApiServer, request: Request) -> Response:
        response = await handle(server, request)
        if request.method == "DELETE" and "/pods/" in request.path and b":0" in request.body:
            statuses[response.status] += 1
        if "watch=" in request.query and "nodeName" in request.query:
            assert not isinstance(response.body, bytes)
            response = replace(response, body=late(response.body))
        return response

    monkeypatch.setattr(ApiServer, "handle", with_late_pods)
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 0))
        await scaled(c, 3)
        statuses.clear()
        for pod in (await c.client.list(Pod)).items:
            await c.client.delete(Pod, key_of(pod))
        await asyncio.sleep(60)
        assert statuses == {200: 3}


async def test_a_set_syncs_a_few_times_during_many_deletions():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 0))
        await scaled(c, MACHINES)
        before = (await c.metrics()).value("workqueue_adds_total", name="replicaset")
        await scaled(c, 0)
        looks = (await c.metrics()).value("workqueue_adds_total", name="replicaset") - before
        assert looks <= 4


async def test_a_vmi_is_running_and_ready_in_one_write():
    async with cluster() as c:
        since = c.server.store.revision
        await c.client.create(ReplicaSet, replica_set("test", 1))
        await c.until_ready("test", 1)
        versions = [
            event.record.document()["status"]
            for event in c.server.store.changes(OF_MACHINES[1], since)
        ]
        running = [status for status in versions if status.get("phase") == "Running"]
        assert len(running) >= 1
        for status in running:
            [ready] = [each for each in status["conditions"] if each["type"] == "Ready"]
            assert ready["status"] == "True"
        passed = [each["phase"] for each in versions[-1]["phaseTransitionTimestamps"]]
        assert passed == ["Pending", "Scheduling", "Scheduled", "Running"]


async def test_vmis_of_a_set_trigger_no_sync_of_vms():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        metrics = await c.metrics()
        assert metrics.value("workqueue_adds_total", name="vm") == 0
        assert metrics.value("workqueue_adds_total", name="vmi") >= 3
