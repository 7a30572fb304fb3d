"""Disks: an explicit chain of block nodes for each, and a device on the requested bus.

``blocks`` and ``attachment`` return them in the form of QEMU's monitor, which hotplug uses, too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.api.kinds.vmi import disks as kinds
from corral.api.kinds.vmi.hotplug import hotplug_cdroms, hotplug_disks
from corral.api.kinds.vmi.live_update import queues
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.disk_cache import DIRECT, THROUGH, mode
from corral.node.hypervisor import Drive
from corral.node.qemu.devices.boot import boot_indexes
from corral.node.qemu.devices.plugs import TRAY, device_name, medium_name, node_name, tray_name
from corral.node.qemu.devices.ports import controller_port, disk_ports
from corral.node.qemu.domain import Domain, add_fd, device, option

SATA_PORTS = 6  # of one AHCI controller
SCSI = "scsi0"
MATCHED_BLOCK = 4096
"""The block size of a disk that is to match its volume: that of the file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """A disk of the VMI, its drive, and its position among all disks.

    ``drive``: None for an empty CD-ROM.  ``opaque``: the purpose of its descriptors.  ``port``: the
    port of a virtio disk that may be unplugged.
    """

    node: str
    id: str
    disk: kinds.Disk
    drive: Drive | None
    opaque: str
    boot_index: int | None
    port: str | None

    @property
    def bus(self) -> str:
        return bus_of(self.disk)


def bus_of(disk: kinds.Disk) -> str:
    """Return the bus of a disk, or the default bus."""
    target = disk.disk or disk.cdrom or disk.lun
    return (target.bus if target is not None else "") or ("sata" if disk.cdrom else "virtio")


def disks(domain: Domain) -> list[str]:
    slots = list(_slots(domain))
    arguments = _controllers({slot.bus for slot in slots}, len(slots), domain)
    on_sata = 0
    for slot in slots:
        if slot.drive is not None:
            files = domain.handles.files[slot.disk.name]
            for descriptor in files.values():
                arguments += add_fd(descriptor, opaque=slot.opaque)
            for block in blocks(slot.node, slot.disk, slot.drive, files):
                arguments += option("blockdev", **block)
        properties = attachment(
            slot.id,
            slot.node,
            slot.disk,
            slot.drive,
            queue_count=queues(domain.vmi),
            boot_index=slot.boot_index,
        )
        if slot.disk.dedicated_io_thread and slot.bus == "virtio":
            properties["iothread"] = thread = f"iothread-{slot.node}"
            arguments += option("object", qom_type="iothread", id=thread)
        if slot.bus == "sata":
            properties["bus"] = f"sata{on_sata // SATA_PORTS}.{on_sata % SATA_PORTS}"
            on_sata += 1
        elif slot.port is not None:
            properties["bus"] = slot.port
        elif slot.bus == "usb" and slot.id.startswith(TRAY):
            # usb-storage has no drive that can be empty.
            arguments += device("usb-bot", id=f"bot-{slot.id}")
            properties |= {"driver": "scsi-cd", "bus": f"bot-{slot.id}.0"}
            del properties["removable"]
        arguments += device(**properties)
    return arguments


def needs_usb(domain: Domain) -> bool:
    return any(slot.bus == "usb" for slot in _slots(domain))


def _slots(domain: Domain) -> Iterator[_Slot]:
    order = boot_indexes(domain)
    names = _names(domain.vmi)
    plugged, trays = hotplug_disks(domain.vmi.spec), hotplug_cdroms(domain.vmi.spec)
    free = iter(disk_ports(domain.vmi))
    for disk in domain.vmi.spec.domain.devices.disks:
        drive = domain.drives.get(disk.name)
        if drive is None and disk.name not in trays:
            continue
        name, node = names[disk.name]
        is_medium = disk.name in trays and disk.name in plugged
        on_port = disk.name in plugged and bus_of(disk) == "virtio"
        yield _Slot(
            node=node,
            id=name,
            disk=disk,
            drive=drive,
            opaque=medium_name(disk.name, plugged[disk.name].claim) if is_medium else node,
            boot_index=order.get(("disk", disk.name)),
            port=next(free) if on_port else None,
        )


def node_of(vmi: VirtualMachineInstance, volume: str) -> str:
    """Return the top block node of a volume.  Raises KeyError if no disk shows it."""
    return _names(vmi)[volume][1]


def _names(vmi: VirtualMachineInstance) -> Mapping[str, tuple[str, str]]:
    """Return device and top block node of each disk: the same, whichever disks are hotplugged.

    Every drive is numbered, whether its medium is hotplugged or not, so that its names are the same
    for every version of corral that may have started the machine.
    """
    plugged, trays = hotplug_disks(vmi.spec), hotplug_cdroms(vmi.spec)
    names: dict[str, tuple[str, str]] = {}
    fixed = 0
    for disk in vmi.spec.domain.devices.disks:
        plug = plugged.get(disk.name)
        if disk.name in trays:
            medium = medium_name(disk.name, plug.claim if plug is not None else "")
            names[disk.name] = tray_name(disk.name), node_name(medium)
        elif plug is not None:
            name = device_name(disk.name, plug.claim)
            names[disk.name] = name, node_name(name)
            continue
        else:
            names[disk.name] = f"device-disk{fixed}", f"disk{fixed}"
        fixed += 1
    return names


def _controllers(buses: set[str], count: int, domain: Domain) -> list[str]:
    arguments: list[str] = []
    if "scsi" in buses:
        arguments += device(**scsi_controller(domain.vmi))
    if "sata" in buses:
        for index in range(-(-count // SATA_PORTS)):
            arguments += device("ich9-ahci", id=f"sata{index}")
    return arguments


def scsi_controller(vmi: VirtualMachineInstance) -> dict[str, Any]:
    """Return the controller of all SCSI disks, in the port that is kept for it."""
    properties: dict[str, Any] = {"driver": "virtio-scsi-pci", "id": SCSI}
    if (count := queues(vmi)) is not None:
        properties["num_queues"] = count
    if (port := controller_port(vmi)) is not None:
        properties["bus"] = port
    return properties


def blocks(
    node: str, disk: kinds.Disk, drive: Drive, files: Mapping[Path, int]
) -> Iterator[dict[str, Any]]:
    """Return the block graph below a node, bottom up: format over file, for each layer.

    ``files``: the fdset of each file.
    """
    cache = file_cache(disk, drive)
    below: str | None = None
    for number, layer in reversed(list(enumerate(drive.layers))):
        name = f"{node}-layer{number}"
        yield _file(f"{name}-file", files[layer.path], read_only=True)
        yield _block(
            node_name=name,
            driver=layer.format,
            file=f"{name}-file",
            backing=below,
            read_only=True,
        )
        below = name
    yield _file(
        f"{node}-file",
        files[drive.path],
        read_only=drive.read_only,
        cache=cache or None,
        aio=disk.io or None,
    )
    yield _block(
        node_name=node,
        driver=drive.format,
        file=f"{node}-file",
        backing=below,
        read_only=drive.read_only,
        discard="unmap",
        cache=cache or None,
    )


def _file(name: str, fdset: int, *, read_only: bool, **how: Any) -> dict[str, Any]:
    """Return a file node with QEMU's locks: no other process writes it, unless it is shared."""
    return _block(
        node_name=name,
        driver="file",
        filename=f"/dev/fdset/{fdset}",
        read_only=read_only,
        discard="unmap",
        **how,
    )


def _block(**values: Any) -> dict[str, Any]:
    """Return the options of a block node, with QEMU's names."""
    return {name.replace("_", "-"): value for name, value in values.items() if value is not None}


def attachment(
    name: str,
    node: str,
    disk: kinds.Disk,
    drive: Drive | None,
    *,
    queue_count: int | None,
    boot_index: int | None = None,
) -> dict[str, Any]:
    """Return the device that shows a block node to the guest, without its address on the bus.

    ``queue_count``: of a device that has one for each vCPU, None for QEMU's choice.
    """
    is_cdrom = disk.cdrom is not None
    requested = disk.error_policy or "stop"
    policy = "enospc" if requested == "enospace" else requested  # KubeVirt's word, and QEMU's
    properties: dict[str, Any] = {
        "id": name,
        "drive": node if drive is not None else None,
        "bootindex": boot_index,
        "serial": disk.serial or None,
        "werror": None if is_cdrom else policy,
        "rerror": None if is_cdrom else policy if policy != "enospc" else "report",
        **device_cache(disk, drive),
    }
    kind = "cd" if is_cdrom else "hd"
    match bus_of(disk):
        case "sata":
            properties["driver"] = f"ide-{kind}"
        case "scsi":
            properties["driver"] = f"scsi-{kind}"
            properties["bus"] = f"{SCSI}.0"
        case "usb":
            properties |= {"driver": "usb-storage", "removable": is_cdrom}
        case _:
            properties |= {"driver": "virtio-blk-pci", "num-queues": queue_count}
    return {key: value for key, value in properties.items() if value is not None}


def file_cache(disk: kinds.Disk, drive: Drive) -> dict[str, bool]:
    """Return the cache options of a disk's block nodes.

    Flushes of the guest reach the host's storage in every cache mode, except for ephemeral disks,
    which are not flushed at all.
    """
    options = {}
    if mode(disk, drive) in DIRECT:
        options["direct"] = True
    if drive.ephemeral:
        options["no-flush"] = True
    return options


def device_cache(disk: kinds.Disk, drive: Drive | None) -> dict[str, Any]:
    """Return the device's options for its cache, block sizes, and shared writes.

    Only a CD-ROM may have no drive.
    """
    options: dict[str, Any] = {}
    if disk.cdrom is None and drive is not None:
        if mode(disk, drive) in THROUGH:
            options["write-cache"] = "off"
        if disk.shareable:
            options["share-rw"] = True
    return options | _block_size(disk)


def _block_size(disk: kinds.Disk) -> dict[str, int]:
    size = disk.block_size
    if size is None:
        return {}
    if size.custom is not None:
        sizes = {
            "logical_block_size": size.custom.logical,
            "physical_block_size": size.custom.physical,
        }
        if size.custom.discard_granularity is not None:
            sizes["discard_granularity"] = size.custom.discard_granularity
        return sizes
    if size.match_volume is None or size.match_volume.enabled is False:
        return {}
    target = disk.disk or disk.lun
    matched = {"physical_block_size": MATCHED_BLOCK}
    if target is None or target.bus != "sata":  # SATA has logical blocks of 512 bytes only
        matched["logical_block_size"] = MATCHED_BLOCK
    return matched
