"""The boot order of devices."""

from collections.abc import Mapping

from corral.node.qemu.domain import Domain


def boot_indexes(domain: Domain) -> Mapping[tuple[str, str], int]:
    """Return the boot index of each bootable device, by ("disk" or "interface", name).

    If any device has a ``bootOrder``, only those are bootable; else disks are, in the order of the
    manifest, as in KubeVirt.
    """
    devices = domain.vmi.spec.domain.devices
    named = {("disk", disk.name): disk.boot_order for disk in devices.disks} | {
        ("interface", interface.name): interface.boot_order for interface in devices.interfaces
    }
    ordered = {name: order for name, order in named.items() if order is not None}
    if ordered:
        return ordered
    return {("disk", disk.name): index for index, disk in enumerate(devices.disks, start=1)}
