"""Services and who answers for them, in a whole cluster under virtual time."""

import pytest
from lightkube.models.core_v1 import Endpoints, Pod, Service
from lightkube.models.discovery_v1 import EndpointSlice
from tests.sim.cluster import cluster, replica_set

from corral.api.kinds.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key

pytestmark = pytest.mark.looptime

WEB = Key("default", "web")


def service(**spec) -> dict:
    return {
        "metadata": {"name": "web", "namespace": "default", "labels": {"tier": "front"}},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": "test"},
            "ports": [{"port": 80, "targetPort": 8080}],
            **spec,
        },
    }


async def slices(c) -> list[EndpointSlice]:
    found = await c.client.list(
        EndpointSlice, "default", labels="kubernetes.io/service-name=web"
    )
    return found.items


async def told(c) -> dict[str, bool]:
    """Pods by name, and whether they are told to be ready."""
    return {
        each.targetRef.name: each.conditions.ready
        for one in await slices(c)
        for each in one.endpoints or ()
    }


async def addressed(c) -> None:
    """Give every pod an address, as its node does."""
    for number, pod in enumerate(await c.pods("default")):
        ip = f"10.244.0.{number + 2}"
        change = {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}
        await c.client.patch(Pod, Key("default", pod.metadata.name), change, subresource="status")


async def test_pods_come_ready_and_go():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.settled("test", 3)
        await addressed(c)
        await c.client.create(Service, service())

        async def tells(count):
            return list((await told(c)).values()) == [True] * count

        await c.until(lambda: tells(3))
        (one,) = await slices(c)
        assert one.metadata.name.startswith("web-")
        assert one.metadata.labels["tier"] == "front"
        old = await c.client.get(Endpoints, "web", "default")
        assert len(old.subsets[0].addresses) == 3
        assert old.subsets[0].ports[0].port == 8080
        await c.scale("test", 1)
        await c.until(lambda: tells(1))
        await c.client.delete(Service, WEB)

        async def is_gone():
            return not await slices(c) and not (await c.client.list(Endpoints)).items

        await c.until(is_gone)
