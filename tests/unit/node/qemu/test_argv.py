"""The command line, compared as text."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from corral.api.kinds.vmi.status import CpuTopology
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Drive, Layer
from corral.node.qemu.argv import SANDBOX, argv
from corral.node.qemu.devices.interfaces import bridged, unplugged
from corral.node.qemu.domain import Accelerator, Domain, Handles

UID = "0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c"


def domain(
    spec=None, *, drives=(), taps=None, accelerator=Accelerator.TCG, **spec_fields
) -> Domain:
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": UID},
        "spec": {"domain": {"devices": {}, **(spec or {})}, **spec_fields},
    }
    numbers = count(20)
    return Domain(
        vmi=msgspec.convert(document, VirtualMachineInstance),
        handles=Handles(
            monitor=10,
            serial=11,
            serial_log=12,
            agent=13,
            files={
                drive.volume: {path: next(numbers) for path, _ in drive.files()} for drive in drives
            },
            taps=taps or {},
        ),
        accelerator=accelerator,
        drives={drive.volume: drive for drive in drives},
    )


def value(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def objects(arguments: list[str], option: str) -> list[dict]:
    return [
        json.loads(arguments[index + 1])
        for index, argument in enumerate(arguments)
        if argument == option and arguments[index + 1].startswith("{")
    ]


def devices(arguments: list[str]) -> dict[str, dict]:
    return {one["driver"]: one for one in objects(arguments, "-device")}


def test_a_received_guest_keeps_the_machine_type_that_it_has():
    own = domain({"machine": {"type": "q35"}})
    assert value(argv(own), "-machine").startswith("q35,")
    received = replace(own, machine_type="pc-q35-7.2")
    assert value(argv(received), "-machine").startswith("pc-q35-7.2,")


def test_a_machine_has_no_default_devices():
    arguments = argv(domain())
    assert "-nodefaults" in arguments
    assert "-no-user-config" in arguments
    assert value(arguments, "-display") == "none"
    assert value(arguments, "-machine") == (
        "q35,sata=off,smbus=off,usb=off,vmport=off,hpet=off,dump-guest-core=off,acpi=on"
    )
    by_default = {"virtio-serial-pci", "virtserialport", "virtio-balloon-pci", "VGA"}
    assert set(devices(arguments)) == by_default | {"pcie-root-port"}


def test_qemu_starts_paused_and_does_not_exit_on_shutdown():
    arguments = argv(domain())
    assert "-S" in arguments
    assert value(arguments, "-action") == "shutdown=pause,panic=pause,reboot=reset"


def test_qemu_is_sandboxed():
    assert value(argv(domain()), "-sandbox") == SANDBOX
    assert "spawn=deny" in SANDBOX


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"resources": {"requests": {"memory": "64M"}}}, "62500K"),
        ({"resources": {"limits": {"memory": "128Mi"}}}, "131072K"),
        ({"memory": {"guest": "1Gi"}, "resources": {"requests": {"memory": "2Gi"}}}, "1048576K"),
        ({"memory": {"guest": 1025}}, "2K"),
        ({}, "131072K"),
    ],
)
def test_memory_is_that_of_the_spec(resources, expected):
    assert value(argv(domain(resources)), "-m") == expected


def test_guest_memory_precedes_requests_and_limits():
    spec = {"memory": {"guest": "64Mi"}, "resources": {"requests": {"memory": "1Gi"}}}
    assert value(argv(domain(spec)), "-m") == "65536K"


def test_the_tcg_translation_cache_fits_the_guest():
    assert value(argv(domain({"memory": {"guest": "128Mi"}})), "-accel") == "tcg,tb-size=32"
    assert value(argv(domain({"memory": {"guest": "2Gi"}})), "-accel") == "tcg,tb-size=128"
    assert value(argv(domain()), "-cpu") == "qemu64,+rdrand"


def test_free_page_reporting_is_on_unless_the_balloon_is_disabled():
    assert devices(argv(domain()))["virtio-balloon-pci"]["free-page-reporting"] is True
    declined = domain({"devices": {"autoattachMemBalloon": False}})
    assert "virtio-balloon-pci" not in devices(argv(declined))


def test_kvm_has_the_host_cpu_model_by_default():
    kvm = Accelerator.KVM
    assert value(argv(domain(accelerator=kvm)), "-accel") == "kvm"
    assert value(argv(domain(accelerator=kvm)), "-cpu") == "host"
    named = domain({"cpu": {"model": "Nehalem"}}, accelerator=kvm)
    assert value(argv(named), "-cpu") == "Nehalem"


def test_topology_defaults_to_one_of_each():
    assert value(argv(domain({"cpu": {"cores": 2}})), "-smp") == "2,sockets=1,cores=2,threads=1"
    assert value(argv(domain()), "-smp") == "1,sockets=1,cores=1,threads=1"
    roomy = domain({"cpu": {"sockets": 1, "cores": 2, "maxSockets": 3}})
    assert value(argv(roomy), "-smp") == "2,sockets=3,cores=2,threads=1,maxcpus=6"
    full = domain({"cpu": {"sockets": 3, "maxSockets": 3}})
    assert value(argv(full), "-smp") == "3,sockets=3,cores=1,threads=1"
    full.vmi.status.current_cpu_topology = CpuTopology(sockets=2, cores=1, threads=1)
    assert value(argv(full), "-smp") == "2,sockets=3,cores=1,threads=1,maxcpus=3"


def test_a_cpu_limit_counts_as_sockets_without_a_topology():
    limited = domain({"cpu": {"model": "host-model"}, "resources": {"limits": {"cpu": "1500m"}}})
    assert value(argv(limited), "-smp") == "2,sockets=2,cores=1,threads=1"


OVERLAY = Drive(
    volume="root", path=Path("/m/root.qcow2"), layers=(Layer(Path("/m/base.raw"), "raw"),)
)


def test_an_overlay_is_an_explicit_chain_over_inherited_descriptors():
    arguments = argv(
        domain(
            {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}}, drives=[OVERLAY]
        )
    )
    nodes = {node["node-name"]: node for node in objects(arguments, "-blockdev")}
    assert nodes["disk0-file"]["filename"] == "/dev/fdset/20"
    assert nodes["disk0-layer0-file"]["filename"] == "/dev/fdset/21"
    assert nodes["disk0-layer0"]["read-only"] is True
    assert nodes["disk0-layer0"]["driver"] == "raw"
    assert nodes["disk0"]["backing"] == "disk0-layer0"
    assert nodes["disk0"]["cache"] == {"no-flush": True}
    assert "/m/" not in " ".join(arguments)
    assert arguments[arguments.index("fd=20,set=20,opaque=disk0") - 1] == "-add-fd"


@pytest.mark.parametrize(
    ("disk", "driver"),
    [
        ({"disk": {"bus": "virtio"}}, "virtio-blk-pci"),
        ({"disk": {"bus": "sata"}}, "ide-hd"),
        ({"disk": {"bus": "scsi"}}, "scsi-hd"),
        ({"disk": {"bus": "usb"}}, "usb-storage"),
        ({"cdrom": {"bus": "sata"}}, "ide-cd"),
        ({"cdrom": {"bus": "scsi"}}, "scsi-cd"),
        ({"cdrom": {}}, "ide-cd"),
        ({}, "virtio-blk-pci"),
    ],
)
def test_each_bus_has_its_device_and_controller(disk, driver):
    drive = Drive(volume="root", path=Path("/m/root"), format="raw")
    volumes = [{"name": "root", "containerDisk": {"image": "x"}}]
    spec = {"devices": {"disks": [{"name": "root", **disk}]}}
    arguments = argv(domain(spec, drives=[drive], volumes=volumes))
    assert devices(arguments)[driver]["drive"] == "disk0"
    controllers = {"ide": "ich9-ahci", "scsi": "virtio-scsi-pci", "usb": "qemu-xhci,id=usb0"}
    for prefix, controller in controllers.items():
        present = controller in devices(arguments) or controller in arguments
        assert present == driver.startswith(prefix)


@pytest.mark.parametrize(
    ("policy", "on_write", "on_read"),
    [
        (None, "stop", "stop"),
        ("report", "report", "report"),
        ("enospace", "enospc", "report"),
    ],
)
def test_error_policies_are_translated_to_qemus(policy, on_write, on_read):
    drive = Drive(volume="root", path=Path("/m/root"), format="raw")
    disk = {"name": "root", "disk": {"bus": "virtio"}}
    disk |= {"errorPolicy": policy} if policy else {}
    arguments = argv(domain({"devices": {"disks": [disk]}}, drives=[drive]))
    shown = devices(arguments)["virtio-blk-pci"]
    assert (shown["werror"], shown["rerror"]) == (on_write, on_read)


def test_a_seventh_sata_disk_is_on_a_second_controller():
    drives = [Drive(volume=f"d{n}", path=Path(f"/m/{n}"), format="raw") for n in range(7)]
    disks = [{"name": drive.volume, "disk": {"bus": "sata"}} for drive in drives]
    arguments = argv(domain({"devices": {"disks": disks}}, drives=drives))
    buses = [one["bus"] for one in objects(arguments, "-device") if one["driver"] == "ide-hd"]
    assert buses == ["sata0.0", "sata0.1", "sata0.2", "sata0.3", "sata0.4", "sata0.5", "sata1.0"]


def test_an_unprepared_disk_is_left_out():
    arguments = argv(domain({"devices": {"disks": [{"name": "root", "disk": {}}]}}))
    assert objects(arguments, "-blockdev") == []


def test_a_read_only_drive_is_opened_read_only():
    drive = Drive(volume="root", path=Path("/m/root"), format="raw", read_only=True)
    spec = {"devices": {"disks": [{"name": "root", "cdrom": {"bus": "sata"}}]}}
    nodes = objects(argv(domain(spec, drives=[drive])), "-blockdev")
    assert all(node["read-only"] for node in nodes)


def test_text_of_users_cannot_inject_options():
    disk = {"name": "root", "disk": {"bus": "virtio"}, "serial": 'x","driver":"pc-testdev,a=b'}
    drive = Drive(volume="root", path=Path("/m/root"), format="raw")
    spec = {
        "devices": {"disks": [disk]},
        "firmware": {"serial": "1,uuid=2", "uuid": UID},
        "chassis": {"asset": "a,b"},
    }
    arguments = argv(domain(spec, drives=[drive]))
    assert devices(arguments)["virtio-blk-pci"]["serial"] == disk["serial"]
    assert f"type=1,manufacturer=corral,uuid={UID},serial=1,,uuid=2" in arguments
    assert "type=3,asset=a,,b" in arguments


def test_an_explicit_boot_order_replaces_the_default():
    drives = [Drive(volume=name, path=Path(f"/m/{name}"), format="raw") for name in ("a", "b")]
    disks = [{"name": "a", "disk": {}}, {"name": "b", "disk": {}, "bootOrder": 1}]
    arguments = argv(domain({"devices": {"disks": disks}}, drives=drives))
    indexes = [
        one.get("bootindex")
        for one in objects(arguments, "-device")
        if one["driver"] == "virtio-blk-pci"
    ]
    assert indexes == [None, 1]


def test_interfaces_have_stable_mac_addresses():
    spec = {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}
    networks = [{"name": "default", "pod": {"vmNetworkCIDR": "10.9.0.0/24"}}]
    first = argv(domain(spec, networks=networks))
    assert first == argv(domain(spec, networks=networks))
    nic = devices(first)["virtio-net-pci"]
    assert nic["mac"].startswith("02:")
    assert nic["romfile"] == ""
    assert objects(first, "-netdev")[0]["net"] == "10.9.0.0/24"


def test_an_interface_with_a_tap_is_on_the_pods_network():
    spec = {"devices": {"interfaces": [{"name": "default", "macAddress": "DE-AD-00-00-BE-AF"}]}}
    one = domain(spec, taps={"default": 30})
    assert objects(argv(one), "-netdev") == [{"type": "tap", "id": "net0", "fd": "30"}]
    assert devices(argv(one))["virtio-net-pci"]["mac"] == "de:ad:00:00:be:af"
    assert 30 in one.handles.all()


def test_an_interface_that_is_down_has_its_link_off():
    cards = [{"name": "a"}, {"name": "b", "state": "down"}, {"name": "c", "state": "absent"}]
    assert unplugged(domain({"devices": {"interfaces": cards}})) == ["nic1"]


def test_interfaces_with_the_pods_address_can_be_replugged():
    cards = [
        {"name": "a", "masquerade": {}},
        {"name": "b", "bridge": {}},
        {"name": "c", "bridge": {}, "state": "down"},
        {"name": "d", "bridge": {}, "state": "absent"},
    ]
    assert bridged(domain({"devices": {"interfaces": cards}}).vmi) == ["nic1"]


def test_an_interface_that_is_absent_is_left_out():
    spec = {"devices": {"interfaces": [{"name": "default", "state": "absent"}]}}
    assert objects(argv(domain(spec)), "-netdev") == []


def test_the_serial_console_is_a_socket_with_a_log():
    serial = next(one for one in argv(domain()) if one.startswith("socket,id=serial0"))
    assert serial == "socket,id=serial0,fd=11,server=on,wait=off,logfile=/dev/fdset/12,logappend=on"
    silent = argv(domain({"devices": {"logSerialConsole": False}}))
    assert not any("logfile" in one for one in silent)
    none = argv(domain({"devices": {"autoattachSerialConsole": False}}))
    assert "-serial" not in none


def test_there_is_a_vnc_display_by_default():
    line = argv(domain())
    assert value(line, "-vnc") == "none", "it listens nowhere"
    assert '{"driver":"VGA","id":"video0"}' in line
    bochs = argv(domain({"devices": {"video": {"type": "bochs"}}}))
    assert '{"driver":"bochs-display","id":"video0"}' in bochs
    declined = argv(domain({"devices": {"autoattachGraphicsDevice": False}}))
    assert "-vnc" not in declined
    assert not any("VGA" in each for each in declined)


def test_optional_devices():
    spec = {
        "devices": {
            "rng": {},
            "watchdog": {"name": "w", "i6300esb": {"action": "poweroff"}},
            "panicDevices": [{"model": "isa"}],
            "inputs": [{"name": "t", "type": "tablet", "bus": "usb"}],
        }
    }
    arguments = argv(domain(spec))
    assert {"virtio-rng-pci", "i6300esb", "pvpanic", "usb-tablet"} <= set(devices(arguments))
    assert "watchdog=poweroff" in arguments


def test_a_guest_that_must_not_reboot_shuts_down_instead():
    assert "reboot=shutdown" in value(argv(domain({"rebootPolicy": "Terminate"})), "-action")


@pytest.mark.parametrize(
    ("bus", "driver"), [("sata", "ide-cd"), ("scsi", "scsi-cd"), ("usb", "scsi-cd")]
)
def test_an_empty_cdrom_drive_exists_and_does_not_rename_other_disks(bus, driver):
    root, claim = {"name": "root", "containerDisk": {"image": "x"}}, {"hotpluggable": True}
    disks = [{"name": "cd", "cdrom": {"bus": bus}}, {"name": "root", "disk": {"bus": "virtio"}}]
    drives = [Drive(volume="root", path=Path("/m/root"))]
    empty = argv(domain({"devices": {"disks": disks}}, drives=drives, volumes=[root]))
    drives.append(Drive(volume="cd", path=Path("/m/cd"), format="raw", read_only=True))
    shown = {"name": "cd", "persistentVolumeClaim": {"claimName": "my.iso", **claim}}
    full = argv(domain({"devices": {"disks": disks}}, drives=drives, volumes=[root, shown]))
    fixed = {"name": "cd", "persistentVolumeClaim": {"claimName": "my.iso"}}
    stays = argv(domain({"devices": {"disks": disks}}, drives=drives, volumes=[root, fixed]))
    assert devices(stays)["virtio-blk-pci"]["drive"] == "disk1"
    for arguments in (empty, full):
        assert devices(arguments)[driver]["id"] == "tray-cd"
        assert devices(arguments)["virtio-blk-pci"]["drive"] == "disk1", "as behind one that stays"
        assert ("usb-bot" in devices(arguments)) == (bus == "usb")
    assert "drive" not in devices(empty)[driver]
    assert devices(full)[driver]["drive"].startswith("plug-")
    assert any(one.endswith("opaque=medium-cd.my.iso") for one in full)
