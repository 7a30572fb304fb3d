"""Hotplug of disks, and of media in CD-ROM drives.

QEMU itself keeps the state: a device is named after its volume and claim, and so are its block
nodes and descriptors.  A manager that is killed between any two steps leaves block nodes without a
device; ``recover`` removes them.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.hotplug import HotplugDisk
from corral.api.kinds.vmi.live_update import queues
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.host.open_disks import opened
from corral.node.hypervisor import DiskBusyError, Drive, GuestError
from corral.node.qemu.cdrom import Trays
from corral.node.qemu.devices.disks import SCSI, attachment, blocks, bus_of, scsi_controller
from corral.node.qemu.devices.plugs import (
    PREFIX,
    device_name,
    medium_name,
    medium_of,
    node_name,
    shown_by,
    tray_name,
)
from corral.node.qemu.devices.ports import controller_port, is_disk_port
from corral.node.qemu.monitor import Event, Monitor, MonitorError

LOCK = '" lock'
"""A part of QEMU's error message when another process has locked a disk."""
BUSY = 'is used by another machine (Failed to get "write" lock)'

_DEVICES = "/machine/peripheral"
_LAYER = re.compile(r"-layer(\d+)")
_ALREADY_REQUESTED = "in the process of unplug"
_IN_USE = "is in use"


class QemuPlugs:
    """The hotplugged disks of one guest (``corral.node.hypervisor.Plugs``)."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._trays = Trays(monitor)
        self._on_released: Callable[[str], None] = lambda _volume: None
        self._unplugging: set[str] = set()

    def on_released(self, listener: Callable[[str], None]) -> None:
        self._on_released = listener

    def on_event(self, event: Event) -> None:
        """Notify the listener of a volume that the guest has released, if that is the event."""
        name = event.get("data", {}).get("device", "")
        if event["event"] == "DEVICE_DELETED" and (shown := shown_by(name)) is not None:
            self._on_released(shown[0])
        elif (volume := self._trays.freed(event)) is not None:
            self._on_released(volume)

    async def recover(self) -> Mapping[str, str]:
        """Return the plugged volumes, and remove the rests of other disks.

        QEMU removes a device's name a moment before it releases the block nodes, and only then
        sends the
        event: until that a disk that is being unplugged counts as present.
        """
        devices = await self._devices()
        fdsets = await self._fdsets()
        await self._trays.shut(devices)
        media = await self._trays.media(devices)
        kept = {node_name(name) for name in devices if name.startswith(PREFIX)}
        kept |= set(media.values())
        nodes = await self._monitor.execute("query-named-block-nodes", {"flat": True})
        orphans = [name for node in nodes if _is_orphan(name := node["node-name"], kept)]
        for name in sorted(orphans, key=_depth):
            if _top(name) in kept:
                continue
            try:
                await self._monitor.execute("blockdev-del", {"node-name": name})
            except MonitorError as error:
                if _IN_USE not in str(error):
                    raise
                kept.add(_top(name))
        for number, purpose in fdsets:
            node = purpose if medium_of(purpose) is None else node_name(purpose)
            if _is_orphan(node, kept):
                await self._monitor.execute("remove-fd", {"fdset-id": number})
        self._unplugging = {name for name in self._unplugging if node_name(name) in kept}
        names = (*devices, *self._unplugging)
        shown = [each for name in names if (each := shown_by(name)) is not None]
        shown += [
            medium
            for _, purpose in fdsets
            if (medium := medium_of(purpose)) is not None
            and media.get(tray_name(medium[0])) == node_name(purpose)
        ]
        return dict(shown)

    async def plug(
        self, vmi: VirtualMachineInstance, plug: HotplugDisk, drives: Mapping[str, Drive]
    ) -> None:
        """Plug a disk in; ``recover`` removes the rests of a step that failed."""
        disk, drive = plug.disk, drives[plug.disk.name]
        devices = await self._devices()
        if plug.is_medium:
            tray, medium = tray_name(disk.name), medium_name(disk.name, plug.claim)
            if tray not in devices:
                raise GuestError("the machine was started without this drive for media to change")
            node = node_name(medium)
            await self._add(node, disk, drive, purpose=medium)
            await self._trays.load(disk.name, node)
            return
        name = device_name(disk.name, plug.claim)
        node = node_name(name)
        properties = attachment(name, node, disk, drive, queue_count=queues(vmi))
        if bus_of(disk) == "virtio":
            properties["bus"] = await self._free_port(devices)
        elif SCSI not in devices:
            await self._plug_controller(vmi, devices)
        await self._add(node, disk, drive, purpose=node, device=properties)

    async def _add(
        self,
        node: str,
        disk: Disk,
        drive: Drive,
        *,
        purpose: str,
        device: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the block nodes of a drive, and the device above them, if it has its own."""
        files = await self._lend(purpose, drive)
        try:
            for block in blocks(node, disk, drive, files):
                await self._monitor.execute("blockdev-add", block)
            if device is not None:
                await self._monitor.execute("device_add", device)
        except MonitorError as error:
            if LOCK in str(error):
                raise DiskBusyError(f"its disk {BUSY}") from error
            raise

    async def unplug(self, volume: str, claim: str) -> None:
        name = device_name(volume, claim)
        devices = await self._devices()
        if name not in devices and tray_name(volume) in devices:
            if await self._trays.empty(volume):
                self._on_released(volume)
            return
        self._unplugging.add(name)
        try:
            await self._monitor.execute("device_del", {"id": name})
        except MonitorError as error:
            if _ALREADY_REQUESTED not in str(error) and name in await self._devices():
                raise

    async def _devices(self) -> Mapping[str, str]:
        """Return the devices that have names, with their types."""
        listed = await self._monitor.execute("qom-list", {"path": _DEVICES})
        return {one["name"]: one["type"] for one in listed}

    async def _fdsets(self) -> Sequence[tuple[int, str]]:
        """Return QEMU's fdsets, with the purpose of each."""
        return [
            (fdset["fdset-id"], fd.get("opaque", ""))
            for fdset in await self._monitor.execute("query-fdsets")
            for fd in fdset["fds"][:1]  # each set has one descriptor
        ]

    async def _free_port(self, devices: Mapping[str, str]) -> str:
        ports = {name for name in devices if is_disk_port(name)}
        used = {
            await self._port_of(name)
            for name, kind in devices.items()
            if name.startswith(PREFIX) and "virtio" in kind
        }
        if free := sorted(ports - used, key=lambda name: (len(name), name)):
            return free[0]
        raise GuestError(
            f"all {len(ports)} ports for virtio disks of the machine are in use: use bus scsi"
            if ports
            else "the machine was started without ports for disks"
        )

    async def _port_of(self, device: str) -> str:
        where = {"path": f"{_DEVICES}/{device}", "property": "parent_bus"}
        bus: str = await self._monitor.execute("qom-get", where)
        return bus.rpartition("/")[2]

    async def _plug_controller(
        self, vmi: VirtualMachineInstance, devices: Mapping[str, str]
    ) -> None:
        if controller_port(vmi) not in devices:
            raise GuestError("the machine was started without a port for a SCSI controller")
        await self._monitor.execute("device_add", scsi_controller(vmi))

    async def _lend(self, purpose: str, drive: Drive) -> Mapping[Path, int]:
        """Open a drive's files and add them to QEMU, which may open none; return their fdsets."""
        files: dict[Path, int] = {}
        with ExitStack() as stack:
            for path, flags in drive.files():
                try:
                    descriptor = opened(path, flags, leased=bool(drive.lease))
                except OSError as error:
                    raise GuestError(f"{path.name} cannot be opened: {error.strerror}") from error
                stack.callback(os.close, descriptor)
                fdset: dict[str, Any] = await self._monitor.lend(
                    descriptor, "add-fd", {"opaque": purpose}
                )
                files[path] = fdset["fdset-id"]
        return files


def _is_orphan(name: str, kept: set[str]) -> bool:
    """Report whether a block node, or the purpose of a descriptor, belongs to no present disk."""
    return name.startswith(PREFIX) and _top(name) not in kept


def _top(name: str) -> str:
    """Return the top block node of a node's chain."""
    return _LAYER.split(name)[0].removesuffix("-file")


def _depth(name: str) -> tuple[int, bool]:
    """Return the sort key of a block node, from the top down: a node can only be removed first."""
    layer = _LAYER.search(name)
    return int(layer[1]) if layer is not None else -1, name.endswith("-file")
