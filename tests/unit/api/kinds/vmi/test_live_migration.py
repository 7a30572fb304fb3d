"""Whether a VMI can be live-migrated, and how."""

import msgspec
import pytest

from corral.api.kinds.vmi.launcher import UNRECORDED
from corral.api.kinds.vmi.live_migration import live_migratable, migration_method
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

CONTAINER_DISK = {"name": "root", "containerDisk": {"image": "cirros:1"}}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "lab"}}
ALL_SHARED = (
    "live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
)


def vmi(binding="masquerade", volumes=(), disks=(), modes=None, **annotations):
    interfaces = [{"name": "default", binding: {}}] if binding else []
    info = {"claimName": "lab", "accessModes": modes}
    document = {
        "metadata": {"name": "vm", "annotations": annotations},
        "spec": {
            "domain": {"devices": {"interfaces": interfaces, "disks": list(disks)}},
            "networks": [{"name": "default", "pod": {}}] if binding else [],
            "volumes": list(volumes),
        },
        "status": {
            "volumeStatus": [{"name": "data", "persistentVolumeClaimInfo": info}] if modes else []
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


def obstacle(machine, *, alone=False):
    found = live_migratable(machine, alone=alone)
    assert found.type == "LiveMigratable"
    assert (found.status == "True") is not bool(found.reason)
    return found.reason


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        ("bridge", "InterfaceNotLiveMigratable"),
        ("masquerade", "MigrationNotSupported"),
        ("passtBinding", "MigrationNotSupported"),
        ("", "MigrationNotSupported"),
    ],
)
def test_reasons_against_migration_begin_with_the_network(binding, reason):
    assert obstacle(vmi(binding), alone=True) == reason


@pytest.mark.parametrize("binding", ["masquerade", "passtBinding", ""])
def test_a_vmi_without_obstacles_is_migratable(binding):
    assert obstacle(vmi(binding, [CONTAINER_DISK])) == ""


@pytest.mark.parametrize(
    ("domain", "launcher", "reason"),
    [
        ({"cpu": {"maxSockets": 4}}, UNRECORDED, "MigrationNotSupported"),
        ({"memory": {"guest": "1Gi", "maxGuest": "4Gi"}}, UNRECORDED, "MigrationNotSupported"),
        ({"cpu": {"sockets": 4, "maxSockets": 4}}, UNRECORDED, ""),
        ({"cpu": {"maxSockets": 4}}, "corral/launcher:1 QEMU 7", ""),
        ({"cpu": {"maxSockets": 4}}, "", ""),
    ],
)
def test_a_machine_without_the_room_that_its_target_would_have_stays(domain, launcher, reason):
    document = msgspec.to_builtins(vmi())
    document["spec"]["domain"] |= domain
    document["status"]["launcherContainerImageVersion"] = launcher
    assert obstacle(msgspec.convert(document, VirtualMachineInstance)) == reason


def test_bridges_can_be_allowed_for_migration():
    allowed = {"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
    assert obstacle(vmi("bridge")) == "InterfaceNotLiveMigratable"
    assert obstacle(vmi("bridge", **allowed)) == ""


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        (["ReadWriteMany"], ""),
        (["ReadWriteOnce"], f"cannot migrate VMI: PVC lab is not shared, {ALL_SHARED}"),
        (None, f"cannot migrate VMI: Unable to determine if PVC lab is shared, {ALL_SHARED}"),
    ],
)
def test_claims_must_be_shared(modes, message):
    found = live_migratable(vmi(volumes=[CONTAINER_DISK, CLAIM], modes=modes))
    assert found.message == message
    assert found.reason == ("DisksNotLiveMigratable" if message else "")


def test_disks_of_the_host_must_be_shared():
    disk = {"name": "host", "hostDisk": {"path": "/x.img", "type": "Disk"}}
    shared = {"name": "host", "hostDisk": {**disk["hostDisk"], "shared": True}}
    assert live_migratable(vmi(volumes=[disk])).message == (
        "cannot migrate VMI with non-shared HostDisk"
    )
    assert obstacle(vmi(volumes=[shared])) == ""


def test_disks_that_are_local_and_writable_are_copied():
    cdrom = {"name": "root", "cdrom": {}}
    assert migration_method(vmi()) == "LiveMigration"
    assert migration_method(vmi(volumes=[CLAIM])) == "LiveMigration"
    assert migration_method(vmi(volumes=[CONTAINER_DISK])) == "BlockMigration"
    assert migration_method(vmi(volumes=[CONTAINER_DISK], disks=[cdrom])) == "LiveMigration"
