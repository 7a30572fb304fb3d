"""VirtualMachines that get their processors and devices by name, in a whole cluster."""

from functools import partial

from lightkube.models.apps_v1 import ControllerRevision
from tests.sim.cluster import cluster

from corral.api.kinds.instancetype import (
    VirtualMachineClusterInstancetype as Instancetype,
    VirtualMachinePreference as Preference,
)
from corral.api.kinds.virtualmachine import VirtualMachine
from corral.api.kinds.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.vm.restart import INSTANCETYPE

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


async def test_a_machine_gets_what_its_type_and_preference_say():
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


async def test_a_type_that_changes_or_goes_changes_no_machine():
    async with cluster() as c:
        told = (await started(c)).status
        kept = told.instancetype_ref.controller_revision_ref.name
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
    return [each.message for each in conditions if each.type == "RestartRequired"] == [INSTANCETYPE]


async def test_another_type_counts_from_the_next_start():
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


async def test_a_type_that_went_before_it_was_kept_is_told_and_waited_for():
    async with cluster() as c:
        await c.client.create(Instancetype, SMALL)
        await c.client.create(Preference, LIKES)
        await c.crash_loops()
        await c.client.create(VirtualMachine, by_name())
        await c.client.delete(Instancetype, Key("", "small"))
        c.start_loops()

        async def is_told():
            found = await c.client.get(VirtualMachine, *reversed(KEY))
            return any(
                one.type == "Failure" and one.reason == "FailedFindInstancetype"
                for one in found.status.conditions
            )

        await c.until(is_told)
        await c.client.create(Instancetype, SMALL)
        found = await running(c, 400)
        assert all(one.type != "Failure" for one in found.status.conditions)
