"""Machines and their claims: what they wait for, what they say of it, and how that heals."""

import asyncio

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass
from tests.sim import provisioner
from tests.sim.cluster import cluster
from tests.sim.test_claims import LATE, claim, class_is_there

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.population import FAILED, PHASE, RUNNING, SUCCEEDED, UPLOAD_TARGET
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key

pytestmark = pytest.mark.looptime

MACHINE = Key("default", "vm")


def machine(**sources):
    """A machine with a virtio disk for each volume."""
    disks = [{"name": name, "disk": {"bus": "virtio"}} for name in sources]
    return {
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "resources": {"requests": {"memory": "64M"}},
                "devices": {"disks": disks},
            },
            "volumes": [{"name": name, **source} for name, source in sources.items()],
        },
    }


ROOT = {"containerDisk": {"image": "cirros:1"}}
CLAIM = {"claimName": "data"}
DATA = {"persistentVolumeClaim": CLAIM}


async def status_of(c):
    return (await c.client.get(Machine, *reversed(MACHINE))).status


async def phase_is(c, phase):
    async def reached():
        return (await status_of(c)).phase == phase

    await c.until(reached)
    return await status_of(c)


async def condition(c, name):
    found = (await status_of(c)).conditions
    return next(((one.status, one.reason, one.message) for one in found if one.type == name), None)


async def test_a_vmi_reports_its_missing_claim_and_starts_once_it_exists():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(Machine, machine(root=ROOT, data=DATA))
        await asyncio.sleep(5)
        why = "PVC default/data does not exist, waiting for it to appear"
        assert (await status_of(c)).phase == "Pending"
        assert await condition(c, "Synchronized") == ("False", "FailedPvcNotFound", why)
        assert await condition(c, "PodScheduled") == ("False", "Unschedulable", why)
        assert (await condition(c, "Ready"))[1] == "PodNotExists"
        assert await c.pods() == []
        assert [(each.type, each.reason, each.message) for each in await c.events("vm")] == [
            ("Normal", "FailedPvcNotFound", why)
        ]
        await c.client.create(PersistentVolumeClaim, claim())
        status = await phase_is(c, "Running")
        assert await condition(c, "Synchronized") is None
        assert await condition(c, "PodScheduled") is None
        assert [(each.name, each.target) for each in status.volume_status] == [
            ("root", "vda"),
            ("data", "vdb"),
        ]
        info = status.volume_status[1].persistent_volume_claim_info
        assert (info.claim_name, info.access_modes) == ("data", ["ReadWriteOnce"])
        assert (info.capacity, info.requests) == ({"storage": "1Gi"}, {"storage": "1Gi"})
        assert (info.volume_mode, info.filesystem_overhead) == ("Filesystem", "0")


async def test_the_pod_of_a_vmi_lists_its_claims():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        await c.client.create(PersistentVolumeClaim, claim("raw", volumeMode="Block"))
        await c.client.create(
            Machine,
            machine(data=DATA, raw={"dataVolume": {"name": "raw"}}),
        )
        await phase_is(c, "Running")
        (pod,) = await c.pods()
        shown = {volume.name: volume.persistentVolumeClaim.claimName for volume in pod.spec.volumes}
        assert shown == {"data": "data", "raw": "raw"}
        compute = pod.spec.containers[0]
        assert [each.name for each in compute.volumeMounts] == ["data"]
        assert [each.devicePath for each in compute.volumeDevices] == ["/dev/raw"]


async def test_a_claim_in_use_stays_as_long_as_the_vmi_runs():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        await c.client.create(Machine, machine(data=DATA))
        await phase_is(c, "Running")
        await c.client.delete(PersistentVolumeClaim, Key("default", "data"))
        await asyncio.sleep(60)
        held = await c.client.get(PersistentVolumeClaim, "data", "default")
        assert held.metadata.deletionTimestamp is not None
        await c.client.delete(Machine, MACHINE)

        async def all_gone():
            return not (await c.client.list(PersistentVolumeClaim)).items

        await c.until(all_gone)


async def test_a_vmi_waits_until_its_claim_is_populated():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        filled = claim()
        filled["metadata"]["annotations"] = {UPLOAD_TARGET: "", PHASE: RUNNING}
        await c.client.create(PersistentVolumeClaim, filled)
        await c.client.create(Machine, machine(data=DATA))
        await asyncio.sleep(60)
        assert await c.pods() == []
        assert (await status_of(c)).phase == "Pending"
        done = {"metadata": {"annotations": {PHASE: SUCCEEDED}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "data"), done)
        await phase_is(c, "Running")


async def test_a_vmi_gets_its_pod_if_its_claim_waits_for_the_first_consumer():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await c.client.create(StorageClass, LATE)
        late = claim(storageClassName="late")
        late["metadata"]["annotations"] = {UPLOAD_TARGET: ""}
        await c.client.create(PersistentVolumeClaim, late)
        await c.client.create(Machine, machine(data=DATA))

        async def is_bound():
            found = await c.client.get(PersistentVolumeClaim, "data", "default")
            return found.status.phase == "Bound"

        await c.until(is_bound)
        await asyncio.sleep(60)
        (pod,) = await c.pods()
        assert pod.spec.nodeName is None
        assert "FailedScheduling" not in [one.reason for one in await c.events(pod.metadata.name)]
        assert await condition(c, "Provisioning") == ("True", "", "")
        done = {"metadata": {"annotations": {PHASE: SUCCEEDED}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "data"), done)
        await phase_is(c, "Running")
        assert await condition(c, "Provisioning") is None


def data_volume(**source):
    return {
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "source": source,
            "pvc": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    }


async def test_a_vmi_whose_data_volume_failed_has_failed():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(DataVolume, data_volume(http={"url": "http://192.0.2.1/disk.img"}))
        await c.client.create(Machine, machine(data={"dataVolume": {"name": "data"}}))
        await asyncio.sleep(5)
        assert (await status_of(c)).phase == "Pending"
        ready = await condition(c, "DataVolumesReady")
        assert ready[1] == "NotAllDVsReady"
        assert ready[2].startswith("Not all of the VMI's DVs are ready: data is ")
        failed = {"metadata": {"annotations": {PHASE: FAILED}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "data"), failed)
        await phase_is(c, "Failed")
        assert (await condition(c, "DataVolumesReady"))[0] == "False"
        assert await c.pods() == []


async def test_a_vmi_reports_when_its_data_volumes_are_ready():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(DataVolume, data_volume(blank={}))
        await c.client.create(Machine, machine(data={"dataVolume": {"name": "data"}}))
        await asyncio.sleep(5)
        done = {"metadata": {"annotations": {PHASE: SUCCEEDED}}}
        await c.client.patch(PersistentVolumeClaim, Key("default", "data"), done)
        await phase_is(c, "Running")
        await asyncio.sleep(5)
        assert await condition(c, "DataVolumesReady") == (
            "True",
            "AllDVsReady",
            "All of the VMI's DVs are bound and not running",
        )


async def test_disks_without_claims_are_in_the_status():
    async with cluster() as c:
        await c.client.create(
            Machine, machine(root=ROOT, scratch={"emptyDisk": {"capacity": "1Gi"}})
        )
        status = await phase_is(c, "Running")
        assert [(each.name, each.target) for each in status.volume_status] == [
            ("root", "vda"),
            ("scratch", "vdb"),
        ]
        (pod,) = (await c.client.list(Pod)).items
        assert pod.spec.volumes is None


async def test_a_hotplugged_claim_stays_until_it_is_unplugged():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        await c.client.create(Machine, machine(root=ROOT))
        await phase_is(c, "Running")
        whole = machine(root=ROOT, data={"persistentVolumeClaim": {**CLAIM, "hotpluggable": True}})
        spec = whole["spec"]
        plugged = {"volumes": spec["volumes"], "domain": {"devices": spec["domain"]["devices"]}}
        await c.component.patch(Machine, MACHINE, {"spec": plugged})
        await c.client.delete(PersistentVolumeClaim, Key("default", "data"))
        await asyncio.sleep(60)
        assert (await c.client.list(PersistentVolumeClaim)).items
        bare = machine(root=ROOT)["spec"]
        taken = {"volumes": bare["volumes"], "domain": {"devices": bare["domain"]["devices"]}}
        await c.component.patch(Machine, MACHINE, {"spec": taken})

        async def all_gone():
            return not (await c.client.list(PersistentVolumeClaim)).items

        await c.until(all_gone)
