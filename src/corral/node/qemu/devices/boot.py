"""The order in which the firmware tries the devices."""

from collections.abc import Mapping

from corral.node.qemu.domain import Domain


def boot_indexes(domain: Domain) -> Mapping[tuple[str, str], int]:
    """The boot index of each bootable device, by ("disk" or "interface", name).

    Devices with ``bootOrder`` come in that order and alone; where none has one, disks come in the
    order of the manifest, as KubeVirt does it.
    """
    devices = domain.vmi.spec.domain.devices
    named = {("disk", disk.name): disk.boot_order for disk in devices.disks} | {
        ("interface", interface.name): interface.boot_order for interface in devices.interfaces
    }
    ordered = {name: order for name, order in named.items() if order is not None}
    if ordered:
        return ordered
    return {("disk", disk.name): index for index, disk in enumerate(devices.disks, start=1)}
