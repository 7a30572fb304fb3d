"""Where disks are plugged in while a guest runs: PCIe root ports, empty at first.

Four of them cost 1 MB, and an emulated guest no more than a twentieth of its boot.  A SCSI
controller that waits for disks would cost that guest a third of its boot, so it is plugged into the
first port together with the first disk that needs it.
"""

from collections.abc import Sequence

from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.hotplug import HotplugDisk, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.qemu.domain import Domain, device

_PREFIX = "port"
_FREE = 3
_FREE_OF_LARGE_MACHINES = 6
_LARGE_BYTES = 2 << 30
"""Ports that are free when a machine starts: as many as KubeVirt grants."""
_SLOT = 0x1E
_FUNCTIONS = 8
"""The ports share the last slots of the board, so that no other device changes its place."""


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
    """Whether a device is a port for a disk on virtio."""
    return name.startswith(_PREFIX) and name != f"{_PREFIX}0"


def controller_port(vmi: VirtualMachineInstance) -> str | None:
    """The port that is kept for the SCSI controller; None where nothing can be plugged in."""
    return next(iter(_names(vmi)), None)


def disk_ports(vmi: VirtualMachineInstance) -> Sequence[str]:
    """The ports of disks on virtio."""
    return _names(vmi)[1:]


def _names(vmi: VirtualMachineInstance) -> Sequence[str]:
    if vmi.spec.domain.devices.disable_hotplug:
        return ()
    large = guest_memory(vmi.spec.domain).rounded_up() > _LARGE_BYTES
    free = _FREE_OF_LARGE_MACHINES if large else _FREE
    taken = sum(map(_is_virtio, hotplug_disks(vmi.spec).values()))
    return [f"{_PREFIX}{number}" for number in range(1 + taken + free)]


def _is_virtio(plug: HotplugDisk) -> bool:
    return plug.disk.disk is not None and plug.disk.disk.bus == "virtio"
