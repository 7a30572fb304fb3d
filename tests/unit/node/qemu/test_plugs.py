"""Hotplug by a monitor that keeps track of nodes, devices and descriptors, as QEMU does."""

import asyncio
import os

import pytest
from tests.unit.node.qemu.devices.test_ports import SCSI, VIRTIO
from tests.unit.node.qemu.test_argv import domain

from corral.api.kinds.vmi.hotplug import hotplug_disks
from corral.node.hypervisor import DiskBusyError, Drive, GuestError, Layer
from corral.node.qemu import monitor as real
from corral.node.qemu.monitor import MonitorError
from corral.node.qemu.plugs import QemuPlugs

VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "my.claim", "hotpluggable": True}}


class Monitor:
    """QEMU's side of it.  ``holding``: devices whose block nodes are not let go of yet."""

    _filter, _is_awaited = real.Monitor._filter, real.Monitor._is_awaited

    def __init__(self, *devices):
        self.devices = dict(devices)
        self.nodes = {"disk0": {}}
        self.fdsets = {}
        self.commands = []
        self.holding = set()
        self.buses = {}
        self.media = {}
        self.open = set()
        self.locked = set()
        self.marks = set()
        self.events, self.awaited = asyncio.Queue(), set()

    async def execute(self, command, arguments=None, **_):
        self.commands.append(command)
        return getattr(self, command.replace("-", "_"))(arguments or {})

    async def lend(self, descriptor, command, arguments):
        assert os.fstat(descriptor).st_size >= 0, "it is open while it is lent"
        number = max(self.fdsets, default=-1) + 1
        self.fdsets[number] = arguments["opaque"]
        return {"fdset-id": number}

    def qom_list(self, which):
        if which["path"] == "/objects":
            return [{"name": name, "type": "child<secret>"} for name in sorted(self.marks)]
        return [{"name": name, "type": f"child<{kind}>"} for name, kind in self.devices.items()]

    def qom_get(self, where):
        port = self.buses[where["path"].rpartition("/")[2]]
        return f"/machine/peripheral/{port}/{port}"

    def query_named_block_nodes(self, _):
        return [{"node-name": name} for name in self.nodes]

    def query_fdsets(self, _):
        return [
            {"fdset-id": number, "fds": [{"fd": 9, "opaque": opaque}]}
            for number, opaque in self.fdsets.items()
        ]

    def blockdev_add(self, block):
        assert block["node-name"] not in self.nodes
        self.nodes[block["node-name"]] = block

    def blockdev_del(self, which):
        name = which["node-name"]
        if name in self.holding:
            raise MonitorError(f"Node {name} is in use")
        users = (self.nodes[one] for one in self.nodes)
        assert not any(name in (one.get("file"), one.get("backing")) for one in users)
        del self.nodes[name]

    def remove_fd(self, which):
        del self.fdsets[which["fdset-id"]]

    def query_block(self, _):
        return [
            {"qdev": name, "inserted": {"node-name": self.media[name]}}
            if name in self.media
            else {"qdev": f"/machine/peripheral/{name}"}
            for name in self.devices
        ]

    def object_add(self, one):
        assert one["id"] not in self.marks
        self.marks.add(one["id"])

    def object_del(self, which):
        self.marks.remove(which["id"])

    def blockdev_open_tray(self, which):
        assert which["force"] is False, "the guest decides"
        self.open |= {which["id"]} - self.locked

    def blockdev_close_tray(self, which):
        self.open.discard(which["id"])

    def blockdev_remove_medium(self, which):
        if which["id"] not in self.open:
            raise MonitorError(f"Tray of device '{which['id']}' is not open")
        self.media.pop(which["id"], None)

    def blockdev_insert_medium(self, which):
        assert which["id"] in self.open
        assert which["id"] not in self.media
        self.media[which["id"]] = which["node-name"]

    def device_add(self, device):
        self.devices[device["id"]] = device["driver"]
        self.buses[device["id"]] = device.get("bus")
        self.added = device

    def device_del(self, which):
        if which["id"] not in self.devices:
            raise MonitorError(f"Device '{which['id']}' not found")
        del self.devices[which["id"]]


def ports(count):
    return [(f"port{number}", "pcie-root-port") for number in range(count)]


def request(disk=SCSI):
    vmi = domain({"devices": {"disks": [{"name": "data", **disk}]}}, volumes=[VOLUME]).vmi
    return vmi, hotplug_disks(vmi.spec)["data"]


@pytest.fixture
def drives(tmp_path):
    for name in ("top", "base"):
        (tmp_path / name).touch()
    layers = (Layer(tmp_path / "base", "raw"),)
    return {"data": Drive(volume="data", path=tmp_path / "top", layers=layers, ephemeral=False)}


async def test_a_scsi_disk_is_plugged_with_its_controller_if_missing(drives):
    monitor = Monitor(*ports(4))
    plugs = QemuPlugs(monitor)
    await plugs.plug(*request(), drives)
    assert monitor.devices["scsi0"] == "virtio-scsi-pci"
    assert monitor.added["id"] == "plug-data.my.claim"
    assert await plugs.recover() == {"data": "my.claim"}
    assert len(monitor.nodes) == 5, "a chain of two, and the disk that was there"
    await plugs.unplug("data", "my.claim")
    assert await plugs.recover() == {}
    assert (set(monitor.nodes), monitor.fdsets) == ({"disk0"}, {})
    await plugs.plug(*request(), drives)
    assert monitor.commands.count("device_add") == 3, "the controller stays"


async def test_a_disk_counts_as_plugged_until_qemu_has_released_it(drives):
    monitor = Monitor(*ports(4))
    plugs = QemuPlugs(monitor)
    heard = []
    plugs.on_released(heard.append)
    await plugs.plug(*request(), drives)
    monitor.holding = {name for name in monitor.nodes if name.startswith("plug-")}
    await plugs.unplug("data", "my.claim")
    assert await plugs.recover() == {"data": "my.claim"}
    monitor.holding.clear()
    plugs.on_event({"event": "DEVICE_DELETED", "data": {"path": "/machine/x"}})
    plugs.on_event({"event": "DEVICE_DELETED", "data": {"device": "nic0"}})
    assert heard == []
    plugs.on_event({"event": "DEVICE_DELETED", "data": {"device": "plug-data.my.claim"}})
    assert heard == ["data"]
    assert await plugs.recover() == {}


async def test_each_virtio_disk_gets_the_first_free_port(drives):
    monitor = Monitor(*ports(12), ("plug-a.b", "virtio-blk-pci"), ("plug-c.d", "scsi-hd"))
    monitor.buses |= {"plug-a.b": "port1"}
    await QemuPlugs(monitor).plug(*request(VIRTIO), drives)
    assert monitor.added["bus"] == "port2", "the first is the controller's, the second is taken"


async def test_unplugging_a_missing_disk_does_nothing():
    await QemuPlugs(Monitor(*ports(4))).unplug("data", "my.claim")


async def test_a_machine_of_an_earlier_version_has_no_ports(drives):
    for disk in (SCSI, VIRTIO):
        with pytest.raises(GuestError, match="was started without"):
            await QemuPlugs(Monitor()).plug(*request(disk), drives)


async def test_a_missing_file_is_reported_without_its_directory(drives):
    drives["data"].path.unlink()
    monitor = Monitor(*ports(4))
    with pytest.raises(GuestError, match=r"^top cannot be opened: No such file or directory$"):
        await QemuPlugs(monitor).plug(*request(), drives)
    assert await QemuPlugs(monitor).recover() == {}
    assert monitor.fdsets == {}


async def test_a_disk_locked_by_another_machine_is_reported(drives):
    monitor = Monitor(*ports(4))

    def refuse(_block):
        raise MonitorError('blockdev-add: Failed to get "write" lock')

    monitor.blockdev_add = refuse
    with pytest.raises(DiskBusyError, match="its disk is used by another machine"):
        await QemuPlugs(monitor).plug(*request(), drives)


CDROM = {"cdrom": {"bus": "sata"}}


def drive_monitor():
    return Monitor(("tray-data", "ide-cd"))


async def test_a_medium_is_inserted_and_the_tray_closed(drives):
    monitor = drive_monitor()
    plugs = QemuPlugs(monitor)
    assert await plugs.recover() == {}
    await plugs.plug(*request(CDROM), drives)
    assert await plugs.recover() == {"data": "my.claim"}
    assert (monitor.open, monitor.marks) == (set(), set())
    assert len(monitor.nodes) == 5, "a chain of two, and the disk that was there"
    assert sorted(monitor.fdsets.values()) == ["medium-data.my.claim"] * 2
    heard = []
    plugs.on_released(heard.append)
    await plugs.unplug("data", "my.claim")
    assert heard == ["data"]
    assert await plugs.recover() == {}
    assert (set(monitor.nodes), monitor.fdsets, monitor.open) == ({"disk0"}, {}, set())
    assert "device_add" not in monitor.commands
    assert "device_del" not in monitor.commands


async def test_a_locked_tray_is_requested_and_reported_once_it_opens(drives):
    monitor = drive_monitor()
    plugs = QemuPlugs(monitor)
    heard = []
    plugs.on_released(heard.append)

    def move(*, is_open, drive="/machine/peripheral/tray-data"):
        monitor._filter({"event": "DEVICE_TRAY_MOVED", "data": {"id": drive, "tray-open": is_open}})
        while not monitor.events.empty():
            plugs.on_event(monitor.events.get_nowait())

    await plugs.plug(*request(CDROM), drives)
    move(is_open=True)  # by the guest, without a request
    await plugs.recover()
    monitor.locked.add("tray-data")
    await plugs.unplug("data", "my.claim")
    assert await plugs.recover() == {"data": "my.claim"}
    assert not monitor.marks
    move(is_open=False)
    move(is_open=True, drive="tray-other")
    assert heard == []
    for _ in range(3):
        move(is_open=True)
    assert heard == ["data"], "once for each request"
    monitor.locked.clear()
    await plugs.unplug("data", "my.claim")
    assert await plugs.recover() == {}
    monitor.locked.add("tray-data")
    with pytest.raises(GuestError, match="the guest keeps its tray locked"):
        await plugs.plug(*request(CDROM), drives)
    assert await plugs.recover() == {}
    assert (set(monitor.nodes), monitor.fdsets) == ({"disk0"}, {})


async def test_a_tray_opened_by_the_guest_stays_open(drives):
    monitor = drive_monitor()
    plugs = QemuPlugs(monitor)
    await plugs.plug(*request(CDROM), drives)
    await plugs.recover()
    monitor.open.add("tray-data")
    assert await QemuPlugs(monitor).recover() == {"data": "my.claim"}
    assert monitor.open == {"tray-data"}


async def test_a_missing_drive_is_an_error(drives):
    with pytest.raises(GuestError, match="was started without this drive"):
        await QemuPlugs(Monitor()).plug(*request(CDROM), drives)
