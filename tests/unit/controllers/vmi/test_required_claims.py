"""What a machine's claims mean for it."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.unit.controllers.make import make_vmi

from corral.api.kinds.cdi.population import PHASE, POPULATE, RUNNING, SUCCEEDED
from corral.controllers.vmi.required_claims import (
    Sources,
    pod_mounts,
    pod_volumes,
    resolve,
    volume_status,
)

POPULATED_BY_REQUEST = {POPULATE: '{"source":{"blank":{}}}'}


def vmi(*volumes, buses=(), **kwargs):
    names = [volume["name"] for volume in volumes]
    disks = [{"name": name, "disk": {"bus": bus}} for name, bus in zip(names, buses, strict=False)]
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": list(volumes)}
    return make_vmi(spec=spec, **kwargs)


def claim_volume(name, claim="data", **fields):
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **fields}}


def claim(name="data", annotations=None, phase="Bound", mode="Filesystem"):
    document = {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": mode,
        },
        "status": {"phase": phase, "capacity": {"storage": "2Gi"}},
    }
    return msgspec.convert(document, PersistentVolumeClaim)


def resolved(of, *claims):
    there = {one.metadata.name: one for one in claims}
    return resolve(
        of, Sources(lambda key: there.get(key.name), lambda _key: None, lambda _key: None)
    )


def test_a_vmi_without_claims_needs_none():
    looked = resolved(vmi({"name": "root", "containerDisk": {"image": "cirros:1"}}))
    assert looked.are_ready
    assert not looked.found


@pytest.mark.parametrize(
    ("claims", "ready"),
    [
        ([claim()], True),
        ([claim(phase="Pending")], True),  # the scheduler says what its pod waits for
        ([], False),
        ([claim(annotations=POPULATED_BY_REQUEST)], False),
        ([claim(annotations=POPULATED_BY_REQUEST | {PHASE: RUNNING})], False),
        ([claim(annotations=POPULATED_BY_REQUEST | {PHASE: SUCCEEDED})], True),
    ],
)
def test_a_vmi_gets_its_pod_once_its_claims_are_populated(claims, ready):
    assert resolved(vmi(claim_volume("disk")), *claims).are_ready is ready


def test_hotplugged_disks_are_not_awaited():
    later = claim_volume("disk", hotpluggable=True)
    assert resolved(vmi(later, buses=["scsi"])).are_ready
    assert pod_volumes(vmi(later, buses=["scsi"]).spec) == []


def test_the_pod_names_the_claims_of_all_disks():
    below = {"persistentVolumeClaim": {"claimName": "golden", "readOnly": True}}
    spec = vmi(
        {"name": "root", "containerDisk": {"image": "cirros:1"}},
        claim_volume("disk"),
        {"name": "filled", "dataVolume": {"name": "dv"}},
        {"name": "overlay", "ephemeral": below},
    ).spec
    assert pod_volumes(spec) == [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "filled", "persistentVolumeClaim": {"claimName": "dv"}},
        {"name": "overlay", "persistentVolumeClaim": {"claimName": "golden", "readOnly": True}},
    ]


def test_block_volumes_are_volume_devices_of_the_pod():
    looked = resolved(
        vmi(claim_volume("disk"), claim_volume("raw", "raw")), claim(), claim("raw", mode="Block")
    )
    assert pod_mounts(looked) == {
        "volumeMounts": [{"name": "disk", "mountPath": "/var/run/kubevirt-private/vmi-disks/disk"}],
        "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}],
    }


def test_the_volume_status_has_the_device_names_of_the_guest():
    of = vmi(
        claim_volume("disk"),
        *({"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in ("a", "b", "c", "d")),
        buses=["virtio", "sata", "virtio", "usb"],
    )
    entries = volume_status(of, resolved(of, claim()))
    assert [(one["name"], one.get("target")) for one in entries] == [
        ("disk", "vda"),
        ("a", "sda"),
        ("b", "vdb"),
        ("c", "sdb"),
        ("d", None),
    ]
    assert entries[0]["persistentVolumeClaimInfo"] == {
        "claimName": "data",
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "capacity": {"storage": "2Gi"},
        "requests": {"storage": "1Gi"},
        "filesystemOverhead": "0",
    }


def test_volume_status_of_others_stays():
    of = vmi(claim_volume("disk"), buses=["virtio"])
    entries = volume_status(of, resolved(of, claim()))
    entries[0]["size"] = 7
    plugged = {"name": "later", "target": "sda", "hotplugVolume": {"attachPodName": "hp"}}
    before = msgspec.structs.replace(
        of, status=msgspec.convert({"volumeStatus": [*entries, plugged]}, type(of.status))
    )
    assert volume_status(before, resolved(before, claim())) is None
    changed = volume_status(before, resolved(before, claim(mode="Block")))
    assert changed[0]["size"] == 7
    assert changed[0]["persistentVolumeClaimInfo"]["volumeMode"] == "Block"
    assert changed[1] == plugged


def test_the_twenty_seventh_disk_is_vdaa():
    names = [f"d{number}" for number in range(28)]
    of = vmi(
        *({"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in names),
        buses=["virtio"] * 28,
    )
    entries = volume_status(of, resolved(of))
    assert [one["target"] for one in entries[25:]] == ["vdz", "vdaa", "vdab"]


def test_claim_info_of_hotplugged_disks_is_added_to_the_nodes_status():
    later = claim_volume("later", hotpluggable=True)
    of = vmi({"name": "root", "emptyDisk": {"capacity": "1Gi"}}, later, buses=["scsi", "scsi"])
    entry = {"name": "later", "target": "sdb", "phase": "Ready"}
    entries = msgspec.convert({"volumeStatus": [entry]}, type(of.status))
    entries = volume_status(msgspec.structs.replace(of, status=entries), resolved(of, claim()))
    assert entries[0] == {"name": "root", "target": "sda"}
    assert entries[1].pop("persistentVolumeClaimInfo")["claimName"] == "data"
    assert entries[1] == entry
