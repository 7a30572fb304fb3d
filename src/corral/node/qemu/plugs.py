"""Disks that are plugged into a QEMU that runs, and taken out again; media of CD-ROM drives, too.

QEMU itself remembers what is plugged in: a device named after its volume, above block nodes and
descriptors that are named after it, too.  A manager that is killed between any two steps leaves
block nodes without a device; they are cleared away by whoever looks next.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.hotplug import HotplugDisk
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
"""What QEMU's complaint has in it where another process has a disk."""
BUSY = 'is used by another machine (Failed to get "write" lock)'

_DEVICES = "/machine/peripheral"
_LAYER = re.compile(r"-layer(\d+)")
_ASKED_ALREADY = "in the process of unplug"
_IN_USE = "is in use"


class QemuPlugs:
    """The disks of one guest that come and go (``corral.node.hypervisor.Plugs``)."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._trays = Trays(monitor)
        self._listener: Callable[[str], None] = lambda _volume: None
        self._asked: set[str] = set()

    def on_released(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def note(self, event: Event) -> None:
        """Hear what QEMU tells."""
        name = event.get("data", {}).get("device", "")
        if event["event"] == "DEVICE_DELETED" and (shown := shown_by(name)) is not None:
            self._listener(shown[0])
        elif (volume := self._trays.freed(event)) is not None:
            self._listener(volume)

    async def recover(self) -> Mapping[str, str]:
        """Clear away the rests of disks that are gone, or never came to be.

        QEMU takes a device's name away a moment before it lets go of the block nodes, and tells of
        the end only then: until that a disk that is being taken out counts as present.
        """
        devices = await self._devices()
        lent = await self._lent()
        await self._trays.shut(devices)
        media = await self._trays.media(devices)
        kept = {node_name(name) for name in devices if name.startswith(PREFIX)}
        kept |= set(media.values())
        nodes = await self._monitor.execute("query-named-block-nodes", {"flat": True})
        rests = [name for node in nodes if _is_rest(name := node["node-name"], kept)]
        for name in sorted(rests, key=_depth):
            if _top(name) in kept:
                continue
            try:
                await self._monitor.execute("blockdev-del", {"node-name": name})
            except MonitorError as error:
                if _IN_USE not in str(error):
                    raise
                kept.add(_top(name))
        for number, purpose in lent:
            node = purpose if medium_of(purpose) is None else node_name(purpose)
            if _is_rest(node, kept):
                await self._monitor.execute("remove-fd", {"fdset-id": number})
        self._asked = {name for name in self._asked if node_name(name) in kept}
        names = (*devices, *self._asked)
        shown = [each for name in names if (each := shown_by(name)) is not None]
        shown += [
            medium
            for _, purpose in lent
            if (medium := medium_of(purpose)) is not None
            and media.get(tray_name(medium[0])) == node_name(purpose)
        ]
        return dict(shown)

    async def plug(
        self, vmi: VirtualMachineInstance, plug: HotplugDisk, drives: Mapping[str, Drive]
    ) -> None:
        """What is left of a step that failed is cleared away by ``recover``."""
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
        wanted = attachment(name, node, disk, drive)
        if bus_of(disk) == "virtio":
            wanted["bus"] = await self._free_port(devices)
        elif SCSI not in devices:
            await self._plug_controller(vmi, devices)
        await self._add(node, disk, drive, purpose=node, device=wanted)

    async def _add(
        self,
        node: str,
        disk: Disk,
        drive: Drive,
        *,
        purpose: str,
        device: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the block nodes of a drive, and the device above them, if it has one of its own."""
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
                self._listener(volume)
            return
        self._asked.add(name)
        try:
            await self._monitor.execute("device_del", {"id": name})
        except MonitorError as error:
            if _ASKED_ALREADY not in str(error) and name in await self._devices():
                raise

    async def _devices(self) -> Mapping[str, str]:
        """The devices that have names, and their types."""
        listed = await self._monitor.execute("qom-list", {"path": _DEVICES})
        return {one["name"]: one["type"] for one in listed}

    async def _lent(self) -> Sequence[tuple[int, str]]:
        """The sets of descriptors that QEMU has, and what they are for."""
        return [
            (fdset["fdset-id"], fd.get("opaque", ""))
            for fdset in await self._monitor.execute("query-fdsets")
            for fd in fdset["fds"][:1]  # of each set there is one
        ]

    async def _free_port(self, devices: Mapping[str, str]) -> str:
        ports = {name for name in devices if is_disk_port(name)}
        taken = {
            await self._port_of(name)
            for name, kind in devices.items()
            if name.startswith(PREFIX) and "virtio" in kind
        }
        if free := sorted(ports - taken, key=lambda name: (len(name), name)):
            return free[0]
        raise GuestError(
            f"all of the machine's {len(ports)} ports for disks on virtio are taken: use bus scsi"
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
        """Open the files of a drive for QEMU, which may open nothing; the sets they are in."""
        files: dict[Path, int] = {}
        with ExitStack() as stack:
            for path, flags in drive.files():
                try:
                    descriptor = opened(path, flags)
                except OSError as error:
                    raise GuestError(f"{path.name} cannot be opened: {error.strerror}") from error
                stack.callback(os.close, descriptor)
                lent: dict[str, Any] = await self._monitor.lend(
                    descriptor, "add-fd", {"opaque": purpose}
                )
                files[path] = lent["fdset-id"]
        return files


def _is_rest(name: str, kept: set[str]) -> bool:
    """Whether a block node, or what a descriptor is for, belongs to no disk that is there."""
    return name.startswith(PREFIX) and _top(name) not in kept


def _top(name: str) -> str:
    """The topmost of the block nodes that one belongs to."""
    return _LAYER.split(name)[0].removesuffix("-file")


def _depth(name: str) -> tuple[int, bool]:
    """How far below its disk a block node is: who stands on others has to go before them."""
    layer = _LAYER.search(name)
    return int(layer[1]) if layer is not None else -1, name.endswith("-file")
