"""Hotplugged disks: which disks of a VMI are attached and detached while it runs.  No I/O."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of

BUSES = ("scsi", "virtio")
"""Buses that support hotplug; disks on others stay for as long as the VMI runs."""

BOUND = "Bound"
ATTACHED = "AttachedToNode"
READY = "Ready"
DETACHING = "Detaching"
"""Phases of a hotplugged volume in a VMI's status (KubeVirt's VolumePhase)."""


def is_hotpluggable(volume: Volume) -> bool:
    """Return whether a volume may be added and removed while the VMI runs."""
    source = volume.persistent_volume_claim or volume.data_volume
    return source is not None and source.hotpluggable


class HotplugDisk(NamedTuple):
    """A hotpluggable disk, and the PVC behind it."""

    disk: Disk
    claim: str

    @property
    def is_medium(self) -> bool:
        """True if the volume is the medium of a CD-ROM drive, which itself stays."""
        return self.disk.cdrom is not None


def hotplug_disks(spec: Spec) -> Mapping[str, HotplugDisk]:
    """Return the hotpluggable disks of a VMI by the names of their volumes."""
    if spec.domain.devices.disable_hotplug:
        return {}
    claims = claims_of(filter(is_hotpluggable, spec.volumes))
    return {
        disk.name: HotplugDisk(disk, claims[disk.name])
        for disk in spec.domain.devices.disks
        if disk.name in claims and _is_hotpluggable_disk(disk)
    }


def _is_hotpluggable_disk(disk: Disk) -> bool:
    target = disk.disk or disk.lun
    return disk.cdrom is not None or (target is not None and target.bus in BUSES)


def hotplug_cdroms(spec: Spec) -> frozenset[str]:
    """Return the names of CD-ROM drives whose medium can change: empty, or with a hotplug volume.

    A drive that starts with any other volume keeps it for as long as the VMI runs (KubeVirt's
    getUpdatedDisks).
    """
    hotplugged, volumes = hotplug_disks(spec), {volume.name for volume in spec.volumes}
    return frozenset(
        disk.name
        for disk in spec.domain.devices.disks
        if disk.cdrom is not None and (disk.name in hotplugged or disk.name not in volumes)
    )


def with_only_disks(vmi: VirtualMachineInstance, disks: Iterable[Disk]) -> VirtualMachineInstance:
    """Return a copy of a VMI that has only these disks."""
    change = msgspec.structs.replace
    devices = change(vmi.spec.domain.devices, disks=list(disks))
    return change(vmi, spec=change(vmi.spec, domain=change(vmi.spec.domain, devices=devices)))
