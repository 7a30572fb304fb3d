"""Which disks of a machine come and go while it runs.  Pure."""

from collections.abc import Mapping

from corral.api.kinds.disks import Disk
from corral.api.kinds.vmi import Spec
from corral.api.kinds.volumes import Volume

BUSES = ("scsi", "virtio")
"""Where disks are plugged in; the others hold their disks for as long as the machine runs."""


def is_hotpluggable(volume: Volume) -> bool:
    """Whether a volume may be added and taken away while the machine runs."""
    source = volume.persistent_volume_claim or volume.data_volume
    return source is not None and source.hotpluggable


def plugged_disks(spec: Spec) -> Mapping[str, Disk]:
    """The disks that are plugged in, by the names of their volumes."""
    if spec.domain.devices.disable_hotplug:
        return {}
    volumes = {volume.name for volume in spec.volumes if is_hotpluggable(volume)}
    return {
        disk.name: disk
        for disk in spec.domain.devices.disks
        if disk.name in volumes and _has_a_plug(disk)
    }


def _has_a_plug(disk: Disk) -> bool:
    target = disk.disk or disk.lun
    return target is not None and target.bus in BUSES
