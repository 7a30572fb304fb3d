"""VirtualMachines that get their processors and devices by name, in a whole cluster."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest
from lightkube.models.apps_v1 import ControllerRevision
from lightkube.models.core_v1 import Namespace
from tests.sim.cluster import cluster

from corral.api.errors import AlreadyExists
from corral.api.kinds.kubevirt.installation import KubeVirt
from corral.api.kinds.kubevirt.instancetype import (
    VirtualMachineClusterInstancetype as Instancetype,
    VirtualMachinePreference as Preference,
)
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.vm.restart import TEMPLATE

pytestmark = pytest.mark.looptime

SMALL = {
    "metadata": {"name": "small"},
    "spec": {"cpu": {"guest": 2}, "memory": {"guest": "64Mi"}, "annotations": {"size": "s"}},
}
KEY = Key("default", "testvm")
LIKES = {
    "metadata": {"name": "likes", "namespace": "default"},
    "spec": {
        "cpu": {"preferredCPUTopology": "cores"},
        "devices": {"preferredDiskBus": "scsi", "preferredRng": {}},
    },
}


def by_name():
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {
            "runStrategy": "Always",
            "instancetype": {"name": "small"},
            "preference": {"name": "likes", "kind": "VirtualMachinePreference"},
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "domain": {"devices": {"disks": [{"name": "root"}]}},
                    "volumes": [{"name": "root", "containerDisk": {"image": "cirros:1"}}],
                },
            },
        },
    }


async def running(c, seconds=120.0):
    async def is_running():
        found = await c.client.get(VirtualMachine, *reversed(KEY))
        return found.status.printable_status == "Running"

    await c.until(is_running, seconds)
    return await c.client.get(VirtualMachine, *reversed(KEY))


async def machine(c):
    return await c.client.get(Machine, *reversed(KEY))


async def started(c):
    await c.client.create(Instancetype, SMALL)
    await c.client.create(Preference, LIKES)
    await c.client.create(VirtualMachine, by_name())
    return await running(c)


async def test_a_vmi_gets_the_fields_of_its_instance_type_and_preference():
    async with cluster() as c:
        await started(c)
        domain = (await machine(c)).spec.domain
        assert (domain.cpu.sockets, domain.cpu.cores, domain.cpu.threads) == (1, 2, 1)
        assert domain.memory.guest == "64Mi"
        assert domain.devices.disks[0].disk.bus == "scsi"
        assert domain.devices.rng is not None
        annotations = (await machine(c)).metadata.annotations
        assert annotations["size"] == "s"
        assert annotations["kubevirt.io/cluster-instancetype-name"] == "small"
        assert annotations["kubevirt.io/preference-name"] == "likes"


async def test_a_changed_or_deleted_instance_type_changes_no_vmi():
    async with cluster() as c:
        status = (await started(c)).status
        kept = status.instancetype_ref.controller_revision_ref.name
        assert kept.startswith("testvm-small-v1beta1-")
        revision = await c.client.get(ControllerRevision, kept, "default")
        assert revision.data["spec"]["cpu"] == {"guest": 2}
        larger = {"spec": {"cpu": {"guest": 4}}}
        await c.client.patch(Instancetype, Key("", "small"), larger)
        before = (await machine(c)).metadata.uid
        await c.client.delete(Preference, Key("default", "likes"))
        await c.client.delete(Machine, KEY)

        async def is_another():
            return any(
                found.metadata.uid != before and found.status.phase == "Running"
                for found in await c.machines()
            )

        await c.until(is_another)
        domain = (await machine(c)).spec.domain
        assert domain.cpu.cores == 2
        assert domain.devices.disks[0].disk.bus == "scsi"


async def waits_for_a_restart(c):
    conditions = (await c.client.get(VirtualMachine, *reversed(KEY))).status.conditions
    return [each.message for each in conditions if each.type == "RestartRequired"] == [TEMPLATE]


async def test_another_instance_type_takes_effect_at_the_next_start():
    async with cluster() as c:
        await started(c)
        large = {
            "metadata": {"name": "large"},
            "spec": {"cpu": {"guest": 3}, "memory": {"guest": "96Mi"}},
        }
        await c.client.create(Instancetype, large)
        change = {"spec": {"instancetype": {"name": "large"}}}
        await c.client.patch(VirtualMachine, KEY, change)

        async def is_kept():
            ref = (await c.client.get(VirtualMachine, *reversed(KEY))).status.instancetype_ref
            return ref.name == "large"

        await c.until(is_kept)
        await c.until(partial(waits_for_a_restart, c))
        assert (await machine(c)).spec.domain.cpu.cores == 2
        await c.client.delete(Machine, KEY)

        async def is_large():
            domains = [found.spec.domain for found in await c.machines()]
            return [(one.cpu.cores, one.memory.guest) for one in domains] == [(3, "96Mi")]

        await c.until(is_large)
        assert not await waits_for_a_restart(c)


async def test_an_instance_type_deleted_before_its_revision_is_reported_and_awaited():
    async with cluster() as c:
        await c.client.create(Instancetype, SMALL)
        await c.client.create(Preference, LIKES)
        await c.crash_loops()
        await c.client.create(VirtualMachine, by_name())
        await c.client.delete(Instancetype, Key("", "small"))
        c.start_loops()

        async def is_reported():
            found = await c.client.get(VirtualMachine, *reversed(KEY))
            return any(
                one.type == "Failure" and one.reason == "FailedFindInstancetype"
                for one in found.status.conditions
            )

        await c.until(is_reported)
        await asyncio.sleep(400)  # by now, whoever only tried again would do so rarely
        await c.client.create(Instancetype, SMALL)
        found = await running(c, 20)
        assert all(one.type != "Failure" for one in found.status.conditions)


async def refusal(c):
    conditions = (await c.client.get(VirtualMachine, *reversed(KEY))).status.conditions
    return next(((one.reason, one.message) for one in conditions if one.type == "Failure"), None)


async def test_an_instance_type_created_after_its_vm_is_awaited():
    async with cluster() as c:
        await c.client.create(VirtualMachine, by_name())
        why = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "small" not found'

        async def waits_for_its_type():
            return await refusal(c) == ("FailedFindInstancetype", why)

        await c.until(waits_for_its_type)
        status = (await c.client.get(VirtualMachine, *reversed(KEY))).status
        assert status.printable_status == "Stopped"
        await c.client.create(Instancetype, SMALL)

        async def waits_for_its_preference():
            return ((await refusal(c)) or ("",))[0] == "FailedFindPreference"

        await c.until(waits_for_its_preference)
        assert await c.machines() == []
        await c.client.create(Preference, LIKES)
        await running(c, 20)
        assert (await machine(c)).spec.domain.cpu.cores == 2


async def set_policy(c, policy):
    configuration = {"instancetype": {"referencePolicy": policy}}
    document = {
        "metadata": {"namespace": "kubevirt", "name": "kubevirt"},
        "spec": {"configuration": configuration},
    }
    with suppress(AlreadyExists):
        await c.client.create(Namespace, {"metadata": {"name": "kubevirt"}})
    await c.client.create(KubeVirt, document)


async def all_revisions(c):
    return (await c.client.list(ControllerRevision)).items


async def is_expanded(c):
    found = await c.client.get(VirtualMachine, *reversed(KEY))
    return found.spec.instancetype is None and found.status.instancetype_ref is None


@pytest.mark.parametrize("policy", ["expand", "expandAll"])
async def test_the_expand_policy_expands_references_of_a_vm(policy):
    async with cluster() as c:
        await set_policy(c, policy)
        found = await started(c)
        assert await is_expanded(c)
        assert found.spec.preference is None
        domain = found.spec.template.spec.domain
        assert (domain.cpu.cores, domain.memory.guest) == (2, "64Mi")
        assert domain.devices.disks[0].disk.bus == "scsi"
        assert (await machine(c)).spec.domain.cpu.cores == 2
        names = [one.metadata.name for one in await all_revisions(c)]
        assert all("v1beta1" not in name for name in names)


@pytest.mark.parametrize(("policy", "expanded"), [("expand", False), ("expandAll", True)])
async def test_revisions_are_expanded_only_under_the_expand_all_policy(policy, expanded):
    async with cluster() as c:
        kept = (await started(c)).status.instancetype_ref.controller_revision_ref.name
        await set_policy(c, policy)
        change = {"spec": {"runStrategy": "Halted"}}
        await c.client.patch(VirtualMachine, KEY, change)

        async def is_stopped():
            return await c.machines() == []

        await c.until(is_stopped)
        await asyncio.sleep(5)
        names = [one.metadata.name for one in await all_revisions(c)]
        assert (await is_expanded(c), kept in names) == (expanded, not expanded)


async def test_a_revision_in_an_old_format_is_replaced():
    async with cluster() as c:
        old = {
            "metadata": {"name": "kept", "namespace": "default"},
            "data": {
                "apiVersion": "instancetype.kubevirt.io/v1beta1",
                "kind": "VirtualMachineClusterInstancetype",
                "metadata": {"name": "small", "uid": "u", "generation": 3},
                "spec": {"cpu": {"guest": 3}, "memory": {"guest": "64Mi"}},
            },
            "revision": 0,
        }
        await c.client.create(ControllerRevision, old)
        await c.client.create(Preference, LIKES)
        document = by_name()
        document["spec"]["runStrategy"] = "Halted"
        document["status"] = {}
        await c.client.create(VirtualMachine, document)
        reference = {"name": "small", "kind": "VirtualMachineClusterInstancetype"}
        reference["controllerRevisionRef"] = {"name": "kept"}
        status = {"status": {"instancetypeRef": reference}}
        await c.client.patch(VirtualMachine, KEY, status, subresource="status")

        async def is_upgraded():
            found = await c.client.get(VirtualMachine, *reversed(KEY))
            ref = found.status.instancetype_ref
            return ref.controller_revision_ref.name == "testvm-small-v1beta1-u-3"

        await c.until(is_upgraded)
        change = {"spec": {"runStrategy": "Always"}}
        await c.client.patch(VirtualMachine, KEY, change)
        await running(c)
        assert (await machine(c)).spec.domain.cpu.cores == 3
        names = [one.metadata.name for one in await all_revisions(c)]
        assert "kept" not in names


async def test_a_tablet_is_attached_by_the_preference():
    async with cluster() as c:
        await c.client.create(Instancetype, SMALL)
        devices = {"preferredAutoattachInputDevice": True, "preferredInputBus": "virtio"}
        likes = {"metadata": LIKES["metadata"], "spec": {"devices": devices}}
        await c.client.create(Preference, likes)
        await c.client.create(VirtualMachine, by_name())
        await running(c)
        (tablet,) = (await machine(c)).spec.domain.devices.inputs
        assert (tablet.name, tablet.bus, tablet.type) == ("default-0", "virtio", "tablet")
