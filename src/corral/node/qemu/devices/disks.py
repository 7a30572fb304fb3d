"""Disks: for each an explicit chain of block nodes, and a device on the bus that was asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.api.kinds import disks as kinds
from corral.node.hypervisor import Drive
from corral.node.qemu.devices.boot import boot_indexes
from corral.node.qemu.domain import Domain, device, option

SATA_PORTS = 6  # of one AHCI controller


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """A disk of the instance, the drive behind it, and its place among all disks."""

    index: int
    disk: kinds.Disk
    drive: Drive
    boot_index: int | None

    @property
    def node(self) -> str:
        return f"disk{self.index}"

    @property
    def is_cdrom(self) -> bool:
        return self.disk.cdrom is not None

    @property
    def bus(self) -> str:
        target = self.disk.disk or self.disk.cdrom or self.disk.lun
        return (target.bus if target is not None else "") or ("sata" if self.is_cdrom else "virtio")


def disks(domain: Domain) -> list[str]:
    slots = list(_slots(domain))
    arguments = _controllers({slot.bus for slot in slots}, len(slots))
    on_sata = 0
    for slot in slots:
        arguments += _nodes(slot, domain)
        arguments += _device(slot, on_sata)
        on_sata += slot.bus == "sata"
    return arguments


def needs_usb(domain: Domain) -> bool:
    return any(slot.bus == "usb" for slot in _slots(domain))


def _slots(domain: Domain) -> Iterator[_Slot]:
    order = boot_indexes(domain)
    for index, disk in enumerate(domain.vmi.spec.domain.devices.disks):
        if (drive := domain.drives.get(disk.name)) is not None:
            yield _Slot(
                index=index, disk=disk, drive=drive, boot_index=order.get(("disk", disk.name))
            )


def _controllers(buses: set[str], count: int) -> list[str]:
    arguments: list[str] = []
    if "scsi" in buses:
        arguments += device("virtio-scsi-pci", id="scsi0")
    if "sata" in buses:
        for index in range(-(-count // SATA_PORTS)):
            arguments += device("ich9-ahci", id=f"sata{index}")
    return arguments


def _nodes(slot: _Slot, domain: Domain) -> list[str]:
    """The block graph: format over file, and the same again for each layer below an overlay."""
    drive = slot.drive
    arguments: list[str] = []
    cache: dict[str, bool] = {}
    if slot.disk.cache == "none":
        cache["direct"] = True
    if drive.ephemeral:
        cache["no-flush"] = True
    below: str | None = None
    for number, layer in reversed(list(enumerate(drive.layers))):
        name = f"{slot.node}-layer{number}"
        arguments += _file(f"{name}-file", layer.path, domain, read_only=True)
        arguments += option(
            "blockdev",
            node_name=name,
            driver=layer.format,
            file=f"{name}-file",
            backing=below,
            read_only=True,
        )
        below = name
    arguments += _file(
        f"{slot.node}-file", drive.path, domain, read_only=drive.read_only, cache=cache
    )
    arguments += option(
        "blockdev",
        node_name=slot.node,
        driver=drive.format,
        file=f"{slot.node}-file",
        backing=below,
        read_only=drive.read_only,
        discard="unmap",
        cache=cache or None,
    )
    return arguments


def _file(
    name: str, path: Path, domain: Domain, *, read_only: bool, cache: dict[str, bool] | None = None
) -> list[str]:
    return option(
        "blockdev",
        node_name=name,
        driver="file",
        filename=f"/dev/fdset/{domain.handles.files[path]}",
        read_only=read_only,
        discard="unmap",
        cache=cache or None,
        # A shared base is locked by nobody: it is never written.
        locking="off" if read_only else None,
    )


def _device(slot: _Slot, on_sata: int) -> list[str]:
    asked = slot.disk.error_policy or "stop"
    policy = "enospc" if asked == "enospace" else asked  # KubeVirt's word, and QEMU's
    common: dict[str, Any] = {
        "id": f"device-{slot.node}",
        "drive": slot.node,
        "bootindex": slot.boot_index,
        "serial": slot.disk.serial or None,
        "werror": None if slot.is_cdrom else policy,
        "rerror": None if slot.is_cdrom else policy if policy != "enospc" else "report",
        **_block_size(slot.disk),
    }
    kind = "cd" if slot.is_cdrom else "hd"
    match slot.bus:
        case "sata":
            bus = f"sata{on_sata // SATA_PORTS}.{on_sata % SATA_PORTS}"
            return device(f"ide-{kind}", bus=bus, **common)
        case "scsi":
            driver = "scsi-block" if slot.disk.lun is not None else f"scsi-{kind}"
            return device(driver, bus="scsi0.0", **common)
        case "usb":
            return device("usb-storage", removable=slot.is_cdrom, **common)
        case _:
            return device("virtio-blk-pci", **common, **_cache_mode(slot.disk))


def _cache_mode(disk: kinds.Disk) -> dict[str, str]:
    return {"write-cache": "off"} if disk.cache == "writethrough" else {}


def _block_size(disk: kinds.Disk) -> dict[str, int]:
    if disk.block_size is None or disk.block_size.custom is None:
        return {}
    custom = disk.block_size.custom
    return {"logical_block_size": custom.logical, "physical_block_size": custom.physical}
