"""VirtualMachines and the DataVolumes that are made for them."""

import asyncio
from functools import partial

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.sim import provisioner
from tests.sim.cluster import cluster
from tests.sim.test_virtual_machine import (
    KEY,
    get,
    happened,
    machine,
    request_action,
    until_status,
    vm,
)

from corral.api.errors import NotFound
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.population import FAILED, PHASE, SUCCEEDED
from corral.api.kinds.kubevirt.virtualmachine import IMMEDIATE_DATA_VOLUMES, VirtualMachine
from corral.api.object import Key

pytestmark = pytest.mark.looptime

LOOPS = (provisioner.controller,)


def with_disk(strategy="Always", *, name="data", source=None, annotations=None):
    """A VirtualMachine with a disk of its own."""
    document = vm(strategy)
    document["metadata"]["annotations"] = annotations or {}
    spec = document["spec"]
    resources = {"requests": {"storage": "1Gi"}}
    made = {"storage": {"resources": resources}, "source": source or {"upload": {}}}
    spec["dataVolumeTemplates"] = [{"metadata": {"name": name}, "spec": made}]
    template = spec["template"]["spec"]
    template["volumes"].append({"name": "data", "dataVolume": {"name": name}})
    template["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    return document


async def disk(c):
    try:
        return await c.client.get(DataVolume, "data", "default")
    except NotFound:
        return None


async def filled(c, phase=SUCCEEDED):
    """Play who fills the disk, once there is a claim."""

    async def is_there():
        claims = (await c.client.list(PersistentVolumeClaim)).items
        return bool(claims) and claims[0].status.phase == "Bound"

    await c.until(is_there)
    change = {"metadata": {"annotations": {PHASE: phase}}}
    await c.client.patch(PersistentVolumeClaim, Key("default", "data"), change)


async def test_data_volumes_are_created_before_the_first_start():
    async with cluster(stand_ins=LOOPS) as c:
        one = await c.client.create(VirtualMachine, with_disk("Halted"))
        await until_status(c, "Provisioning")
        made = await disk(c)
        assert made.metadata.labels["kubevirt.io/created-by"] == one.metadata.uid
        assert [owner.uid for owner in made.metadata.owner_references] == [one.metadata.uid]
        assert await happened(c) == [("SuccessfulDataVolumeCreate", "Created DataVolume data")]
        await filled(c)
        await until_status(c, "Stopped")


async def test_a_vmi_is_created_once_its_disks_are_populated():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk())
        await until_status(c, "Provisioning")
        await asyncio.sleep(600)
        assert await machine(c) is None
        await filled(c)
        await c.until(lambda: _exists(c))
        assert [reason for reason, _ in await happened(c)] == [
            "SuccessfulDataVolumeCreate",
            "SuccessfulCreate",
        ]


async def _exists(c):
    return await machine(c) is not None


async def test_a_failed_population_of_a_disk_is_reported():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk())
        await until_status(c, "Provisioning")
        await filled(c, FAILED)
        await until_status(c, "DataVolumeError")
        assert (
            "FailedDataVolumeImport",
            "DataVolume data failed to import disk image",
        ) in await happened(c)
        assert await machine(c) is None


async def test_disks_may_wait_for_the_first_start():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(
            VirtualMachine, with_disk("Halted", annotations={IMMEDIATE_DATA_VOLUMES: "false"})
        )
        await until_status(c, "Stopped")
        await asyncio.sleep(60)
        assert await disk(c) is None
        await request_action(c, "start")
        await filled(c)
        await c.until(lambda: _exists(c))


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_disks_are_deleted_with_their_vm(policy):
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk("Halted"))
        await filled(c)
        await until_status(c, "Stopped")
        await c.client.delete(VirtualMachine, KEY, propagation=policy)

        async def is_gone():
            claims = (await c.client.list(PersistentVolumeClaim)).items
            return await disk(c) is None and not claims

        await c.until(is_gone)


async def test_orphaned_disks_are_adopted_by_the_next_vm_of_the_name():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk("Halted"))
        await filled(c)
        await until_status(c, "Stopped")
        uid = (await disk(c)).metadata.uid
        await c.client.delete(VirtualMachine, KEY, propagation="Orphan")

        async def is_free():
            return not (await disk(c)).metadata.owner_references

        await c.until(is_free)
        await asyncio.sleep(60)
        second = await c.client.create(VirtualMachine, with_disk("Halted"))

        async def is_owned():
            owners = (await disk(c)).metadata.owner_references
            return [owner.uid for owner in owners] == [second.metadata.uid]

        await c.until(is_owned)
        assert (await disk(c)).metadata.uid == uid
        await until_status(c, "Stopped")


async def test_a_rejected_data_volume_is_a_failure_condition():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk(name="Not_A_Name"))

        async def has_failed():
            return any(each.type == "Failure" for each in (await get(c)).status.conditions)

        await c.until(has_failed)
        (failure,) = [each for each in (await get(c)).status.conditions if each.type == "Failure"]
        assert failure.reason == "FailedCreate"
        assert failure.message.startswith("Error encountered while creating DataVolumes: ")
        (reason, message), *_ = await happened(c)
        assert reason == "FailedDataVolumeCreate"
        assert message.startswith("Error creating DataVolume Not_A_Name: ")


async def test_a_missing_source_of_a_disk_is_reported():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk(source={"pvc": {"name": "golden"}}))
        await until_status(c, "Provisioning")
        assert (
            "SourcePVCNotAvailabe",
            (
                "Source PVC golden not available: Target PVC data will remain unpopulated until "
                "source is created"
            ),
        ) in await happened(c)


async def test_a_disk_of_another_owner_is_not_used():
    async with cluster(stand_ins=LOOPS) as c:
        await c.client.create(VirtualMachine, with_disk("Halted"))
        await filled(c)
        await until_status(c, "Stopped")
        other = Key("default", "other")
        document = with_disk()
        document["metadata"]["name"] = other.name
        await c.client.create(VirtualMachine, document)

        async def failure():
            found = await c.client.get(VirtualMachine, other.name, other.namespace)
            return [each.message for each in found.status.conditions if each.type == "Failure"]

        await c.until(failure)
        await asyncio.sleep(60)
        assert await c.machines() == []
        [message] = await failure()
        assert message.endswith(": one of that name belongs to VirtualMachine testvm")
        assert [each.reason for each in await c.events(other.name)] == ["FailedDataVolumeCreate"]

        await c.client.delete(VirtualMachine, KEY)

        async def has_its_own():
            found = await disk(c)
            return found is not None and found.metadata.owner_references[0].name == other.name

        await c.until(has_its_own)
        await filled(c)
        await c.until(partial(_runs, c, other.name))
        assert await failure() == []


async def _runs(c, name):
    return any(each.metadata.name == name for each in await c.machines())


async def test_an_existing_claim_of_the_name_is_the_disk():
    async with cluster(stand_ins=LOOPS) as c:
        claim = {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        restored = await c.client.create(PersistentVolumeClaim, claim)
        await c.client.create(VirtualMachine, with_disk())
        await c.until(lambda: _exists(c))
        found = await disk(c)
        assert found.status.phase == "Succeeded"
        kept = await c.client.get(PersistentVolumeClaim, "data", "default")
        assert kept.metadata.uid == restored.metadata.uid
        assert [each.uid for each in kept.metadata.ownerReferences] == [found.metadata.uid]
