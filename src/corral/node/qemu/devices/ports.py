"""PCIe root ports, empty at first, into which disks are plugged while a guest runs.

Four of them cost 1 MB, and an emulated guest less than a twentieth of its boot time.  A SCSI
controller without disks would cost it a third, so it is plugged into the first port together with
the first disk that needs it.
"""

from collections.abc import Sequence

from corral.api.kinds.vmi.hotplug import HotplugDisk, hotplug_disks
from corral.api.kinds.vmi.live_update import boot_memory
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.qemu.domain import Domain, device

_PREFIX = "port"
_FREE = 3
_FREE_OF_LARGE_MACHINES = 6
_LARGE_BYTES = 2 << 30
"""Free ports of a new machine: as many as KubeVirt provides."""
_SLOT = 0x1E
_FUNCTIONS = 8
"""The ports use the last slots of the board, so that no other device's address changes."""


def ports(domain: Domain) -> list[str]:
    arguments: list[str] = []
    for number, name in enumerate(_names(domain.vmi)):
        slot, function = _SLOT - number // _FUNCTIONS, number % _FUNCTIONS
        arguments += device(
            "pcie-root-port",
            id=name,
            chassis=number + 1,
            addr=f"{slot:#x}.{function}",
            multifunction=True if function == 0 else None,
        )
    return arguments


def is_disk_port(name: str) -> bool:
    """Report whether a device is a port for a virtio disk."""
    return name.startswith(_PREFIX) and name != f"{_PREFIX}0"


def controller_port(vmi: VirtualMachineInstance) -> str | None:
    """Return the port that is kept for the SCSI controller; None without hotplug."""
    return next(iter(_names(vmi)), None)


def disk_ports(vmi: VirtualMachineInstance) -> Sequence[str]:
    """Return the ports for virtio disks."""
    return _names(vmi)[1:]


def _names(vmi: VirtualMachineInstance) -> Sequence[str]:
    if vmi.spec.domain.devices.disable_hotplug:
        return ()
    large = boot_memory(vmi).rounded_up() > _LARGE_BYTES
    free = _FREE_OF_LARGE_MACHINES if large else _FREE
    used = sum(map(_is_virtio, hotplug_disks(vmi.spec).values()))
    return [f"{_PREFIX}{number}" for number in range(1 + used + free)]


def _is_virtio(plug: HotplugDisk) -> bool:
    return plug.disk.disk is not None and plug.disk.disk.bus == "virtio"
