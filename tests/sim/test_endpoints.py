"""Services and who answers for them, in a whole cluster under virtual time."""

import asyncio
from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import Endpoints, Pod, Service
from lightkube.models.discovery_v1 import EndpointSlice
from tests.sim.cluster import Faults, cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key
from corral.cluster import node_ipam
from corral.node.hollow.hypervisor import HollowNetworks

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
    found = await c.client.list(EndpointSlice, "default", labels="kubernetes.io/service-name=web")
    return found.items


async def readiness_of_pods(c) -> dict[str, bool]:
    """Return the readiness of pods in the slices, by name."""
    return {
        each.targetRef.name: each.conditions.ready
        for one in await slices(c)
        for each in one.endpoints or ()
    }


def addressed(**options):
    """A cluster whose nodes give every pod an address."""
    ranges = node_ipam.controller(1, ip_network("10.244.0.0/16"))
    return cluster(stand_ins=[ranges], networks=HollowNetworks(), **options)


async def test_slices_follow_the_readiness_and_deletion_of_pods():
    async with addressed() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.until_ready("test", 3)
        await c.client.create(Service, service())

        async def has_members(count):
            return list((await readiness_of_pods(c)).values()) == [True] * count

        await c.until(lambda: has_members(3))
        (one,) = await slices(c)
        assert one.metadata.name.startswith("web-")
        assert one.metadata.labels["tier"] == "front"
        old = await c.client.get(Endpoints, "web", "default")
        assert len(old.subsets[0].addresses) == 3
        assert old.subsets[0].ports[0].port == 8080
        await c.scale("test", 1)
        await c.until(lambda: has_members(1))
        await c.client.delete(Service, WEB)

        async def is_gone():
            return not await slices(c) and not (await c.client.list(Endpoints)).items

        await c.until(is_gone)


@pytest.mark.parametrize("seed", range(4))
async def test_every_pod_is_listed_once_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.2, lose_answer=0.2, delay=0.3, cut=0.05, double=0.1)
    async with addressed(faults=faults) as c:
        await c.client.create(Service, service())
        await c.client.create(ReplicaSet, replica_set("test", 4))
        await c.until_ready("test", 4)
        await c.crash_loops()
        c.start_loops()
        await c.scale("test", 3)
        await c.until_ready("test", 3)

        async def has_members():
            found = [each.targetRef.name for one in await slices(c) for each in one.endpoints or ()]
            pods = [pod.metadata.name for pod in await c.pods("default")]
            return sorted(found) == sorted(pods)

        await c.until(has_members)
        await asyncio.sleep(faults.until)  # an empty slice is deleted last, again where it failed
        assert await has_members()
        assert len(await slices(c)) == 1


async def test_unchanged_slices_are_not_written():
    async with addressed() as c:
        await c.client.create(Service, service())
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)

        async def has_members():
            return len(await readiness_of_pods(c)) == 2

        await c.until(has_members)
        await asyncio.sleep(5)
        before = [one.metadata.resourceVersion for one in await slices(c)]
        pod = (await c.pods("default"))[0]
        change = {"metadata": {"annotations": {"of": "no concern"}}}
        await c.client.patch(Pod, Key("default", pod.metadata.name), change)
        await c.crash_loops()
        c.start_loops()
        await asyncio.sleep(60)
        assert [one.metadata.resourceVersion for one in await slices(c)] == before


async def test_a_deleted_or_changed_slice_is_restored():
    async with addressed() as c:
        await c.client.create(Service, service())
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)

        async def has_members():
            return len(await readiness_of_pods(c)) == 2

        await c.until(has_members)
        (one,) = await slices(c)
        await c.client.patch(EndpointSlice, Key("default", one.metadata.name), {"endpoints": []})
        await c.until(has_members)
        await c.client.delete(EndpointSlice, Key("default", one.metadata.name))
        await c.until(has_members)


async def test_custom_endpoints_are_mirrored_and_their_slices_deleted_with_them():
    async with addressed() as c:
        await c.client.create(Service, service(selector=None, clusterIP=None))
        port = {"name": "http", "port": 80}
        subsets = [{"addresses": [{"ip": "192.0.2.7"}], "ports": [port]}]
        metadata = {"name": "web", "namespace": "default"}
        await c.client.create(Endpoints, {"metadata": metadata, "subsets": subsets})

        async def addresses():
            return [e.addresses[0] for one in await slices(c) for e in one.endpoints or ()]

        await c.until(addresses)
        assert await addresses() == ["192.0.2.7"]
        more = [{"addresses": [{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}], "ports": [port]}]
        await c.client.patch(Endpoints, WEB, {"subsets": more})

        async def both():
            return await addresses() == ["192.0.2.7", "192.0.2.8"]

        await c.until(both)
        assert len(await slices(c)) == 1
        await c.client.delete(Service, WEB)

        async def is_gone():
            return not await slices(c) and not (await c.client.list(Endpoints)).items

        await c.until(is_gone)
