"""Disks that come and go, and a guest that is saved meanwhile."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.guest.volume_hotplug import HotPlug, _Plugging
from corral.node.hypervisor import DiskBusyError, StartError
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS
from corral.node.state.facts import Facts, State

PLAIN = {"domain": {"devices": {}}}
INSTANCE = msgspec.convert(
    {
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {"devices": {"disks": [{"name": "data", "disk": {"bus": "scsi"}}]}},
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
            ],
        },
    },
    VirtualMachineInstance,
)


class Site:
    """A machine whose drives take their time, and the disks that it was given."""

    def __init__(self, *, saved_meanwhile=False, leased=False):
        self.given = []
        self.calls = []
        self._leased = leased
        self.facts = Facts(state=State.RUNNING, plugs={})
        self.guest = SimpleNamespace(plugs=self)
        self._saved_meanwhile = saved_meanwhile

    def set_facts(self, facts):
        self.facts = facts

    async def recover(self):
        return {}

    async def lease(self, drives):
        self.calls.append("lease")
        if self._leased:
            raise StartError("DiskLeased", "leased by VMI other on node host2")

    async def release_unplugged(self, present):
        self.calls.append(f"release all but {sorted(present)}")

    async def plug(self, vmi, plug, drives):
        self.given.append(plug.disk.name)

    async def drives(self, machine, vmi):
        if self._saved_meanwhile:
            self.set_facts(replace(self.facts, saving=True))
        return {}

    async def step(self):
        recorder = SimpleNamespace(vmi_event=lambda *_: None)
        return await _Plugging(self, recorder, self.drives, lambda *_: "in use by keeper").step(
            INSTANCE
        )


async def test_disks_are_plugged_into_a_guest():
    site = Site()
    await site.step()
    assert site.given == ["data"]
    assert site.calls == ["release all but []", "lease"]


async def test_a_disk_that_another_machine_leases_is_not_plugged():
    site = Site(leased=True)
    await site.step()
    assert site.given == []
    assert site.facts.plugs["data"].message == "leased by VMI other on node host2"


async def test_a_vmi_without_hotplugged_disks_wakes_no_task():
    site = Site()
    plain = msgspec.convert({"metadata": {"name": "vm"}, "spec": PLAIN}, VirtualMachineInstance)
    instances = {"uid": plain}
    hotplug = HotPlug(instances.get, site.drives, lambda *_: "")
    plugging = _Plugging(site, SimpleNamespace(), site.drives, lambda *_: "")
    hotplug._running["uid"] = plugging
    plugging.due.clear()
    hotplug.wake("uid")
    assert plugging.due.is_set()  # what is plugged is not known yet
    await plugging.step(plain)
    plugging.due.clear()
    hotplug.wake("uid")
    assert not plugging.due.is_set()
    instances["uid"] = INSTANCE
    hotplug.wake("uid")
    assert plugging.due.is_set()


async def test_no_disks_are_plugged_during_a_save():
    site = Site()
    site.set_facts(replace(site.facts, saving=True))
    assert await site.step() == FIRST_BACK_OFF_SECONDS
    assert site.given == []


async def test_no_disks_are_plugged_if_a_save_begins_during_their_preparation():
    site = Site(saved_meanwhile=True)
    await site.step()
    assert site.given == []


async def test_the_machine_that_locks_a_disk_is_reported():
    site = Site()

    async def refuse(vmi, plug, drives):
        raise DiskBusyError("its disk is used by another machine")

    site.plug = refuse
    await site.step()
    message = (
        "Volume data cannot be plugged in: its disk is used by another machine: in use by keeper"
    )
    assert site.facts.plugs["data"].message == message
