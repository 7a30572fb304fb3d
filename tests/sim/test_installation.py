"""The KubeVirt object: there is one, with the versions that run."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set

from corral.api.errors import Invalid
from corral.api.kinds.kubevirt.installation import KEY, REPORTED_VERSION, KubeVirt
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.status.node_status import Capacity

pytestmark = pytest.mark.looptime


async def read(cluster):
    return await cluster.client.get(KubeVirt, KEY.name, KEY.namespace)


async def installed(cluster):
    """Read the object once its controllers have written its status."""
    await asyncio.sleep(2)
    return await read(cluster)


def conditions(found):
    return {each.type: each.status for each in found.status.conditions}


async def test_the_kubevirt_object_reports_phase_and_version():
    async with cluster(about_itself=True) as here:
        found = await installed(here)
        assert found.status.phase == "Deployed"
        assert found.status.outdated_virtual_machine_instance_workloads == 0
        assert found.status.observed_kube_virt_version == REPORTED_VERSION
        assert conditions(found) == {
            "Available": "True",
            "Progressing": "False",
            "Degraded": "False",
            "Created": "True",
        }
        assert found.spec.image_pull_policy == "IfNotPresent"
        assert found.spec.configuration == {"developerConfiguration": {"featureGates": []}}
        await asyncio.sleep(60)
        after = await read(here)
        assert after.metadata.resource_version == found.metadata.resource_version


async def test_a_deleted_kubevirt_object_is_recreated_and_its_status_restored():
    async with cluster(about_itself=True) as here:
        first = await installed(here)
        wrong = {"status": {"phase": "Deleted", "conditions": []}}
        await here.client.patch(KubeVirt, KEY, wrong, subresource="status")
        await asyncio.sleep(1)
        assert (await read(here)).status.phase == "Deployed"
        await here.client.patch(KubeVirt, KEY, {"spec": {"imageTag": "v1"}})
        await asyncio.sleep(1)
        changed = await read(here)
        assert changed.status.observed_generation == changed.metadata.generation == 2
        await here.client.delete(KubeVirt, KEY)
        await asyncio.sleep(1)
        second = await read(here)
        assert second.metadata.uid != first.metadata.uid
        assert second.status.phase == "Deployed"


async def test_an_empty_spec_has_kubevirts_defaults():
    async with cluster(about_itself=True) as here:
        await installed(here)
        await here.client.patch(KubeVirt, KEY, {"spec": None})
        found = await installed(here)
        assert found.spec.workload_update_strategy == {}
        assert found.spec.image_pull_policy == "IfNotPresent"
        assert found.status.observed_generation == found.metadata.generation


def ratio(value):
    return {"spec": {"configuration": {"developerConfiguration": {"cpuAllocationRatio": value}}}}


async def test_its_allocation_ratio_applies_to_later_vmis():
    async with cluster(about_itself=True) as here:
        await installed(here)
        await here.client.create(ReplicaSet, replica_set(replicas=1))
        await here.until_ready("test", 1)
        await here.client.patch(KubeVirt, KEY, ratio(100))
        await here.scale("test", 2)
        await here.until_ready("test", 2)
        requested = [pod.spec.containers[0].resources.requests["cpu"] for pod in await here.pods()]
        assert sorted(requested) == ["100m", "10m"]
        with pytest.raises(Invalid, match="cpuAllocationRatio: 'ten' is not a whole number"):
            await here.client.patch(KubeVirt, KEY, ratio("ten"))


async def test_an_invalid_ratio_stored_by_an_earlier_version_prevents_no_other_change():
    async with cluster(about_itself=True) as here:
        await installed(here)
        store, kind = here.server.rest.store, "kubevirts.kubevirt.io"
        document = store.get(kind, KEY).document() | ratio("ten")
        await store.write(kind, KEY, document)
        await here.client.patch(KubeVirt, KEY, {"metadata": {"labels": {"a": "b"}}})
        await here.client.patch(KubeVirt, KEY, {"status": {"phase": "x"}}, subresource="status")
        await asyncio.sleep(1)
        assert (await read(here)).status.phase == "Deployed"


async def test_a_full_node_reports_the_remedy_and_later_vmis_fit():
    small = Capacity(cpu=1, memory_bytes=1 << 34, storage_bytes=1 << 40)
    async with cluster(about_itself=True, capacity=small) as here:
        await installed(here)
        await here.client.create(ReplicaSet, replica_set(replicas=10))

        async def waiting():
            machines = await here.machines()
            messages = [each.message for one in machines for each in one.status.conditions]
            return [one for one in messages if "corral up --cpu-allocation-ratio" in one]

        async def is_full():
            return len(await waiting()) == 1 and len(await here.machines()) == 10

        await here.until(is_full)
        await here.client.patch(KubeVirt, KEY, ratio(250))
        (last,) = [each for each in await here.machines() if not each.status.node_name]
        await here.client.delete(Machine, last.key)
        await here.until_ready("test", 10)


async def test_a_second_kubevirt_object_is_rejected():
    async with cluster(about_itself=True) as here:
        await installed(here)
        for key in (Key("kubevirt", "other"), Key("default", "kubevirt")):
            with pytest.raises(Invalid, match="KubeVirt is already created"):
                await here.client.create(
                    KubeVirt, {"metadata": {"namespace": key.namespace, "name": key.name}}
                )
