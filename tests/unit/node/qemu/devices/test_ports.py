"""Where disks are plugged in, on the command line."""

from pathlib import Path

import pytest
from tests.unit.node.qemu.test_argv import devices, domain, objects

from corral.node.hypervisor import Drive, Layer
from corral.node.qemu.argv import argv


def ports(arguments):
    return {
        one["id"]: one["addr"]
        for one in objects(arguments, "-device")
        if one["driver"] == "pcie-root-port"
    }


def with_disks(*disks, **devices_fields):
    """A machine with a claim behind each disk, named by its place."""
    names = [f"data{number}" for number in range(len(disks))]
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}
        for name in names
    ]
    shown = [{"name": name, **disk} for name, disk in zip(names, disks, strict=True)]
    drives = [Drive(volume=name, path=Path(f"/v/{name}"), format="raw") for name in names]
    spec = {"devices": {"disks": shown, **devices_fields}}
    return argv(domain(spec, drives=drives, volumes=volumes))


VIRTIO, SCSI, SATA = ({"disk": {"bus": bus}} for bus in ("virtio", "scsi", "sata"))


@pytest.mark.parametrize(("memory", "free"), [("64M", 3), ("2Gi", 3), ("2049Mi", 6)])
def test_free_hotplug_ports_are_as_many_as_kubevirts_and_one_for_scsi(memory, free):
    assert len(ports(argv(domain({"memory": {"guest": memory}})))) == 1 + free


def test_hotplug_ports_do_not_move_other_devices():
    assert ports(argv(domain())) == {
        "port0": "0x1e.0", "port1": "0x1e.1", "port2": "0x1e.2", "port3": "0x1e.3",
    }  # fmt: skip


def test_without_hotplug_there_are_no_ports_and_disks_do_not_move():
    arguments = with_disks(VIRTIO, disableHotplug=True)
    assert ports(arguments) == {}
    assert devices(arguments)["virtio-blk-pci"]["id"] == "device-disk0"
    assert "bus" not in devices(arguments)["virtio-blk-pci"]


def test_a_hotpluggable_disk_starts_in_its_own_port():
    arguments = with_disks(VIRTIO, VIRTIO)
    shown = [one for one in objects(arguments, "-device") if one["driver"] == "virtio-blk-pci"]
    assert [(one["id"], one["bus"]) for one in shown] == [
        ("plug-data0.data0", "port1"), ("plug-data1.data1", "port2"),
    ]  # fmt: skip
    assert len(ports(arguments)) == 1 + 2 + 3
    assert len({one["drive"] for one in shown}) == 2


def test_hotpluggable_scsi_disks_share_the_scsi_controller():
    arguments = with_disks(SCSI, SCSI)
    assert devices(arguments)["virtio-scsi-pci"] == {
        "driver": "virtio-scsi-pci", "id": "scsi0", "bus": "port0",
    }  # fmt: skip
    assert {one["bus"] for one in objects(arguments, "-device") if one["driver"] == "scsi-hd"} == {
        "scsi0.0"
    }


def test_a_hotpluggable_volume_on_another_bus_gets_no_port():
    assert devices(with_disks(SATA))["ide-hd"]["id"] == "device-disk0"


def test_names_of_block_nodes_are_short_enough_for_qemu():
    name = "a" * 63
    volume = {"name": name, "dataVolume": {"name": "d", "hotpluggable": True}}
    layers = tuple(Layer(Path(f"/v/{number}"), "qcow2") for number in range(100))
    drive = Drive(volume=name, path=Path("/v/top"), layers=layers)
    spec = {"devices": {"disks": [{"name": name, **SCSI}]}}
    files = Drive(volume="other", path=Path("/v/other"))
    one = domain(spec, drives=[files], volumes=[volume])
    one.drives[name] = drive
    one.handles.files[name] = dict.fromkeys((path for path, _ in drive.files()), 20)
    nodes = [each["node-name"] for each in objects(argv(one), "-blockdev")]
    assert len(set(nodes)) == 202
    assert max(map(len, nodes)) <= 31
