"""Disks that are plugged into machines of a whole cluster, and taken out again."""

import asyncio
import json
from functools import partial

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.sim import provisioner
from tests.sim.cluster import ADMIN, cluster
from tests.sim.test_claims import claim, class_is_there
from tests.sim.test_virtual_machine import KEY, vm

from corral.api.kinds.kubevirt.instancetype import VirtualMachinePreference
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.request import Request
from corral.node.guest.volume_hotplug import LONGEST_PAUSE_SECONDS
from corral.node.hollow.plugs import HollowPlugs
from corral.node.hypervisor import GuestError

pytestmark = pytest.mark.looptime

PLURALS = {"vm": "virtualmachines", "vmi": "virtualmachineinstances"}
SCSI = {"disk": {"bus": "scsi"}}


async def ask(c, kind, sub, **body):
    place = f"namespaces/{KEY.namespace}/{PLURALS[kind]}/{KEY.name}"
    request = Request(
        method="PUT",
        path=f"/apis/subresources.kubevirt.io/v1/{place}/{sub}",
        query="",
        headers={},
        body=json.dumps(body).encode(),
        user=ADMIN,
    )
    answer = await c.server.handle(request)
    assert answer.status == 202, answer.body


async def add(c, name="data", kind="vm", claim_name="", **disk):
    source = {"persistentVolumeClaim": {"claimName": claim_name or name}}
    await ask(c, kind, "addvolume", name=name, disk={**SCSI, **disk}, volumeSource=source)


async def remove(c, name="data", kind="vm"):
    await ask(c, kind, "removevolume", name=name)


async def machine(c):
    return await c.client.get(Machine, KEY.name, KEY.namespace)


async def volumes(c):
    """The phase of each volume that comes and goes."""
    statuses = (await machine(c)).status.volume_status
    return {each.name: each.phase for each in statuses if each.hotplug_volume is not None}


async def until_volumes(c, **expected):
    async def are():
        return await volumes(c) == expected

    await c.until(are, 300)


async def running(c, document):
    """Make a VirtualMachine, or a machine, and wait until the guest runs."""
    await class_is_there(c)
    await c.client.create(PersistentVolumeClaim, claim())
    await c.client.create(PersistentVolumeClaim, claim("more"))
    kind = VirtualMachine if "template" in document["spec"] else Machine
    await c.client.create(kind, document)

    async def runs():
        return any(each.status.phase == "Running" for each in await c.machines())

    await c.until(runs)
    return (await machine(c)).metadata.uid


async def plugged(c):
    return dict(await c.guest(await machine(c)).plugs.recover())


async def has_exactly(c, names):
    """Return whether its node knows the guest, and that has just these disks plugged in."""
    known = [path.name for one in c._hypervisors.values() for path in one.guests]
    return (await machine(c)).metadata.uid in known and (await plugged(c)).keys() == names


async def messages_of(c, reason):
    return [each.message for each in await c.events(KEY.name) if each.reason == reason]


async def test_a_disk_added_to_a_vm_is_plugged_into_its_vmi_and_guest():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        uid = await running(c, vm())
        await add(c)
        await until_volumes(c, data="Ready")
        assert await plugged(c) == {"data": "data"}
        found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
        [_, added] = found.spec.template.spec.volumes
        assert added.persistent_volume_claim.hotpluggable
        assert found.status.volume_requests == []
        assert not [one for one in found.status.conditions if one.type == "RestartRequired"]
        entry = (await machine(c)).status.volume_status[1]
        assert entry.target == "sda"
        assert entry.message == "Successfully attach hotplugged volume data to VM"
        assert entry.hotplug_volume.attach_pod_name == (await c.pods())[0].metadata.name
        assert await messages_of(c, "VolumeReady") == [entry.message]

        await remove(c)
        await until_volumes(c)
        assert await plugged(c) == {}
        found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
        assert len(found.spec.template.spec.volumes) == 1
        assert await messages_of(c, "VolumeUnplugged") == [
            "Volume data has been unplugged from the guest"
        ]
        assert (await machine(c)).metadata.uid == uid, "it never restarted"


async def test_disks_of_a_changed_template_are_plugged_without_a_restart():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        uid = await running(c, vm())
        disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", **SCSI}]
        source = {"claimName": "data", "hotpluggable": True}
        desired = {
            "volumes": [
                {"name": "root", "containerDisk": {"image": "cirros:1"}},
                {"name": "data", "persistentVolumeClaim": source},
            ],
            "domain": {"devices": {"disks": disks}},
        }
        await c.client.patch(VirtualMachine, KEY, {"spec": {"template": {"spec": desired}}})
        await until_volumes(c, data="Ready")
        source["claimName"] = "more"
        await c.client.patch(VirtualMachine, KEY, {"spec": {"template": {"spec": desired}}})

        async def shows_the_other():
            return await plugged(c) == {"data": "more"}

        await c.until(shows_the_other)
        await until_volumes(c, data="Ready")
        found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
        assert not [one for one in found.status.conditions if one.type == "RestartRequired"]
        assert (await machine(c)).metadata.uid == uid


def with_drive(claim_name="", *, hotpluggable=True, drive=True):
    """The template of a VirtualMachine whose CD-ROM drive has a claim in it, or nothing."""
    disks = [{"name": "root", "disk": {"bus": "virtio"}}]
    volumes = [{"name": "root", "containerDisk": {"image": "cirros:1"}}]
    if drive:
        disks.insert(0, {"name": "cd", "cdrom": {"bus": "sata"}})
    if claim_name:
        source = {"claimName": claim_name, "hotpluggable": hotpluggable}
        volumes.insert(0, {"name": "cd", "persistentVolumeClaim": source})
    domain = {"resources": {"requests": {"memory": "64M"}}, "devices": {"disks": disks}}
    return {"volumes": volumes, "domain": domain}


async def change(c, **disks):
    template = {"template": {"spec": with_drive(**disks)}}
    await c.client.patch(VirtualMachine, KEY, {"spec": template})


async def waits_for_a_start(c):
    found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
    return any(one.type == "RestartRequired" for one in found.status.conditions)


async def test_media_are_inserted_changed_and_ejected_without_a_restart():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        uid = await running(c, vm(**with_drive()))
        assert await plugged(c) == {}
        drives = (await machine(c)).spec.domain.devices.disks

        await change(c, claim_name="data")
        await until_volumes(c, cd="Ready")
        assert await plugged(c) == {"cd": "data"}
        await change(c, claim_name="more")

        async def shows_the_other():
            return await plugged(c) == {"cd": "more"}

        await c.until(shows_the_other)

        async def is_reported():
            [entry] = [one for one in (await machine(c)).status.volume_status if one.name == "cd"]
            claim_name = entry.persistent_volume_claim_info.claim_name
            return (entry.phase, entry.target, claim_name) == ("Ready", "sda", "more")

        await c.until(is_reported)
        await change(c)
        await until_volumes(c)
        assert await plugged(c) == {}
        assert not await waits_for_a_start(c)

        await change(c, claim_name="data", hotpluggable=False)
        await c.until(partial(waits_for_a_start, c))
        assert await plugged(c) == {}, "what stays comes with the next start"
        await change(c, claim_name="data")
        await until_volumes(c, cd="Ready")
        await change(c, drive=False)
        await until_volumes(c)
        assert await waits_for_a_start(c)
        found = await machine(c)
        assert found.metadata.uid == uid
        assert found.spec.domain.devices.disks == drives, "the guest has the drive that it had"
        await change(c, claim_name="data")
        await until_volumes(c, cd="Ready")
        assert await messages_of(c, "VolumeUnplugged") == [
            "Volume cd has been unplugged from the guest"
        ]


async def test_a_guest_that_locks_its_drive_is_reported():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm(**with_drive("data")))
        await until_volumes(c, cd="Ready")
        guest = c.guest(await machine(c))
        guest.plugs.stubborn = True
        await change(c, claim_name="more")
        await until_volumes(c, cd="Detaching")
        await asyncio.sleep(3 * LONGEST_PAUSE_SECONDS)
        assert await messages_of(c, "VolumeInUse") == ["The guest does not release volume cd"]
        assert await plugged(c) == {"cd": "data"}
        guest.plugs.release_requested()
        await until_volumes(c, cd="Ready")
        assert await plugged(c) == {"cd": "more"}


async def test_a_guest_that_opens_and_locks_its_drive_gets_a_request_once_a_second(monkeypatch):
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm(**with_drive("data")))
        await until_volumes(c, cd="Ready")
        plugs, requested = c.guest(await machine(c)).plugs, []

        async def unplug(volume, _claim):
            requested.append(volume)
            plugs._listener(volume)

        monkeypatch.setattr(plugs, "unplug", unplug)
        await change(c, claim_name="more")
        await until_volumes(c, cd="Detaching")
        await asyncio.sleep(30)
        assert 25 < len(requested) < 35


async def test_a_new_cdrom_drive_is_added_at_the_next_start():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm())
        await change(c, claim_name="data")
        await c.until(partial(waits_for_a_start, c))
        await asyncio.sleep(60)
        assert len((await machine(c)).spec.domain.devices.disks) == 1
        assert await messages_of(c, "HotPlugVolumeError") == []
        assert await volumes(c) == {}


async def test_disks_added_to_a_vmi_without_owner_last_as_long_as_the_vmi():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        template = vm()["spec"]["template"]["spec"]
        await running(c, {"metadata": {"name": KEY.name, "namespace": "default"}, "spec": template})
        await add(c, kind="vmi")
        await until_volumes(c, data="Ready")
        await add(c, "other", kind="vmi", claim_name="more")
        await until_volumes(c, data="Ready", other="Ready")
        assert [one.target for one in (await machine(c)).status.volume_status] == [
            "vda", "sda", "sdb",
        ]  # fmt: skip
        await remove(c, kind="vmi")
        await until_volumes(c, other="Ready")
        await add(c, kind="vmi")
        await until_volumes(c, data="Ready", other="Ready")
        assert {one.target for one in (await machine(c)).status.volume_status} == {
            "vda", "sda", "sdb",
        }  # fmt: skip


async def test_a_vm_starts_with_the_disks_plugged_before():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        uid = await running(c, vm())
        await add(c)
        await until_volumes(c, data="Ready")
        await ask(c, "vm", "restart")

        async def is_another():
            found = await c.machines()
            return any(one.metadata.uid != uid and one.status.phase == "Running" for one in found)

        await c.until(is_another)
        await until_volumes(c, data="Ready")
        assert await plugged(c) == {"data": "data"}
        await remove(c)
        await until_volumes(c)


async def test_a_guest_that_keeps_a_disk_is_reported_and_asked_again():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm())
        await add(c)
        await until_volumes(c, data="Ready")
        guest = c.guest(await machine(c))
        guest.plugs.stubborn = True
        await remove(c)
        await until_volumes(c, data="Detaching")
        await asyncio.sleep(3 * LONGEST_PAUSE_SECONDS)
        [entry] = [one for one in (await machine(c)).status.volume_status if one.hotplug_volume]
        assert (entry.phase, entry.reason) == ("Detaching", "VolumeInUse")
        assert entry.message == "The guest does not release volume data"
        assert await messages_of(c, "VolumeInUse") == [entry.message]
        guest.plugs.release_requested()
        await until_volumes(c)


async def test_a_disk_that_was_never_plugged_is_released_with_its_claim(monkeypatch):
    async def refuse(*_):
        raise GuestError("blockdev-add: it is used by another machine")

    monkeypatch.setattr(HollowPlugs, "plug", refuse)
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm())
        await add(c)
        await until_volumes(c, data="AttachedToNode")
        await remove(c)
        await until_volumes(c)
        await c.client.delete(PersistentVolumeClaim, Key(KEY.namespace, "data"))

        async def is_gone():
            claims = (await c.client.list(PersistentVolumeClaim)).items
            return "data" not in {one.metadata.name for one in claims}

        await c.until(is_gone)


@pytest.mark.parametrize("pause", [0.0, 0.01, 0.05, 0.2, 1.0])
async def test_a_plug_interrupted_by_a_crash_is_resumed(pause):
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm())
        for act, expected in ((add, {"data": "Ready"}), (remove, {})):
            await act(c)
            await asyncio.sleep(pause)
            await c.crash_loops()
            c.kill_agent(next(iter(c._nodes)))
            await asyncio.sleep(1)
            c.start_node(next(iter(c._hypervisors)))
            c.start_loops()
            await until_volumes(c, **expected)

            await c.until(partial(has_exactly, c, expected.keys()))
        assert len(await c.pods()) == 1


@pytest.mark.parametrize("pause", [0.0, 0.01, 0.05, 0.2, 1.0])
async def test_a_change_of_media_interrupted_by_a_crash_is_resumed(pause):
    async with cluster(stand_ins=[provisioner.controller]) as c:
        uid = await running(c, vm(**with_drive()))
        for medium in ("data", "more", ""):
            await change(c, claim_name=medium)
            await asyncio.sleep(pause)
            await c.crash_loops()
            c.kill_agent(next(iter(c._nodes)))
            await asyncio.sleep(1)
            c.start_node(next(iter(c._hypervisors)))
            c.start_loops()
            expected = {"cd": medium} if medium else {}
            await c.until(partial(has_exactly, c, expected.keys()))

            async def shows(expected=expected):
                return await plugged(c) == expected

            await c.until(shows)
            await until_volumes(c, **dict.fromkeys(expected, "Ready"))
        assert (await machine(c)).metadata.uid == uid
        assert len(await c.pods()) == 1
        assert not await waits_for_a_start(c)


async def test_a_plugged_volume_waits_for_its_claim():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await running(c, vm())
        await add(c, "late")
        await asyncio.sleep(20)
        await c.client.create(PersistentVolumeClaim, claim("late"))
        await until_volumes(c, late="Ready")
        await remove(c, "late")
        await until_volumes(c)


@pytest.mark.parametrize(
    "likes",
    [{"preferredDiskBus": "virtio"}, {"preferredDiskBus": "scsi", "preferredDiskCache": "none"}],
)
async def test_a_preference_unplugs_no_disk(likes):
    async with cluster(stand_ins=[provisioner.controller]) as c:
        metadata = {"name": "likes", "namespace": KEY.namespace}
        await c.client.create(
            VirtualMachinePreference, {"metadata": metadata, "spec": {"devices": likes}}
        )
        document = vm()
        document["spec"]["preference"] = {"name": "likes", "kind": "VirtualMachinePreference"}
        template = document["spec"]["template"]["spec"]
        source = {"claimName": "data", "hotpluggable": True}
        template["volumes"].append({"name": "data", "persistentVolumeClaim": source})
        template["domain"]["devices"]["disks"].append({"name": "data", "disk": {}})
        await running(c, document)
        had = (await machine(c)).spec.domain.devices.disks
        await until_volumes(c, data="Ready")
        await add(c, "other", claim_name="more")
        await until_volumes(c, data="Ready", other="Ready")
        assert (await machine(c)).spec.domain.devices.disks[: len(had)] == had
        await remove(c)
        await until_volumes(c, other="Ready")


async def test_a_volume_request_that_cannot_be_fulfilled_is_dropped_and_reported():
    async with cluster(stand_ins=[provisioner.controller]) as c:
        await class_is_there(c)
        await c.client.create(PersistentVolumeClaim, claim())
        document = vm("Halted")
        disks = document["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
        disks[0]["bootOrder"] = 1
        await c.client.create(VirtualMachine, document)
        request = {
            "name": "data",
            "disk": {"name": "data", **SCSI, "bootOrder": 1},
            "volumeSource": {"persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}},
        }
        change = {"status": {"volumeRequests": [{"addVolumeOptions": request}]}}
        await c.client.patch(VirtualMachine, KEY, change, subresource="status")
        await ask(c, "vm", "start")

        async def runs():
            return any(each.status.phase == "Running" for each in await c.machines())

        await c.until(runs)
        found = await c.client.get(VirtualMachine, KEY.name, KEY.namespace)
        assert found.status.volume_requests == []
        assert len(found.spec.template.spec.volumes) == 1
        [message] = await messages_of(c, "HotPlugVolumeError")
        assert message.startswith("Dropped a request for volume data: ")
