"""The status of volumes that come and go."""

import msgspec
import pytest

from corral.api.kinds.vmi.derived import pod_name
from corral.api.kinds.vmi.disks import Disk, DiskTarget
from corral.api.kinds.vmi.hotplug import ATTACHED, DETACHING, READY, HotplugDisk
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.guest.volume_hotplug import plan
from corral.node.state.facts import Facts, Plugged
from corral.node.status.volume_status import volume_status

ROOT = {"name": "root", "target": "vda"}


def vmi(*names, statuses=(ROOT,), bus="scsi"):
    source = {"claimName": "c", "hotpluggable": True}
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {
            "domain": {
                "devices": {"disks": [{"name": one, "disk": {"bus": bus}} for one in names]}
            },
            "volumes": [{"name": one, "persistentVolumeClaim": source} for one in names],
        },
        "status": {"volumeStatus": list(statuses), "activePods": {"u-1": "node"}},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def facts(**plugs):
    return Facts(plugs={name: Plugged(phase=phase) for name, phase in plugs.items()})


def entry(name, phase, target=""):
    shown = {"name": name, "phase": phase, **({"target": target} if target else {})}
    return {**shown, "hotplugVolume": {"attachPodName": pod_name(vmi()), "attachPodUID": "u-1"}}


def test_there_is_no_volume_status_before_disks_are_queried():
    gone = entry("data", DETACHING, "sda")
    assert volume_status(vmi(statuses=(ROOT, gone)), Facts()) == [ROOT, gone]


@pytest.mark.parametrize(("bus", "targets"), [("scsi", ["sda", "sdb"]), ("virtio", ["vdb", "vdc"])])
def test_a_plugged_disk_has_the_next_free_device_name(bus, targets):
    machine = vmi("a", "b", bus=bus)
    assert volume_status(machine, facts(a=ATTACHED)) == [ROOT, entry("a", ATTACHED)]
    statuses = volume_status(machine, facts(a=READY, b=READY))
    assert [one.get("target") for one in statuses[1:]] == targets
    again = vmi("a", "b", statuses=statuses, bus=bus)
    assert volume_status(again, facts(a=READY, b=READY)) == statuses


def test_a_disk_is_listed_until_it_is_unplugged():
    statuses = (ROOT, entry("data", READY, "sda"))
    assert volume_status(vmi(statuses=statuses), facts(data=DETACHING)) == [
        ROOT, entry("data", DETACHING, "sda"),
    ]  # fmt: skip
    assert volume_status(vmi(statuses=statuses), facts()) == [ROOT]


def test_volume_status_of_others_stays():
    claim = {"persistentVolumeClaimInfo": {"claimName": "c"}}
    statuses = (ROOT, {"name": "data", **claim})
    [_, found] = volume_status(vmi("data", statuses=statuses), facts(data=READY))
    assert found.items() >= claim.items()


def test_a_volume_with_another_claim_is_unplugged_first():
    one = HotplugDisk(Disk(name="data", disk=DiskTarget(bus="scsi")), "new")
    assert plan({"data": one}, {}).plug == {"data": one}
    decided = plan({"data": one}, {"data": "old", "other": "c"})
    assert (decided.plug, decided.unplug) == ({}, {"data": "old", "other": "c"})
    assert plan({"data": one}, {"data": "new"}).unplug == {}
