"""Which disks of a machine come and go while it runs.  Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of

BUSES = ("scsi", "virtio")
"""Where disks are plugged in; the others hold their disks for as long as the machine runs."""

BOUND = "Bound"
ATTACHED = "AttachedToNode"
READY = "Ready"
DETACHING = "Detaching"
"""How far a volume has come or gone: its phase in a machine's status, in KubeVirt's words."""


def is_hotpluggable(volume: Volume) -> bool:
    """Whether a volume may be added and taken away while the machine runs."""
    source = volume.persistent_volume_claim or volume.data_volume
    return source is not None and source.hotpluggable


class Plug(NamedTuple):
    """A disk that comes and goes, and the claim that it shows."""

    disk: Disk
    claim: str

    @property
    def is_medium(self) -> bool:
        """Whether it is put into a drive that stays."""
        return self.disk.cdrom is not None


def plugs_of(spec: Spec) -> Mapping[str, Plug]:
    """The disks that are plugged in, by the names of their volumes."""
    if spec.domain.devices.disable_hotplug:
        return {}
    claims = claims_of(filter(is_hotpluggable, spec.volumes))
    return {
        disk.name: Plug(disk, claims[disk.name])
        for disk in spec.domain.devices.disks
        if disk.name in claims and _has_a_plug(disk)
    }


def _has_a_plug(disk: Disk) -> bool:
    target = disk.disk or disk.lun
    return disk.cdrom is not None or (target is not None and target.bus in BUSES)


def trays_of(spec: Spec) -> frozenset[str]:
    """The CD-ROM drives whose medium comes and goes, by name: they are empty, or show a plug.

    A drive that a machine starts with what cannot be taken out has that for as long as it runs
    (KubeVirt's getUpdatedDisks).
    """
    plugs, named = plugs_of(spec), {volume.name for volume in spec.volumes}
    return frozenset(
        disk.name
        for disk in spec.domain.devices.disks
        if disk.cdrom is not None and (disk.name in plugs or disk.name not in named)
    )


def showing(vmi: VirtualMachineInstance, disks: Iterable[Disk]) -> VirtualMachineInstance:
    """A machine as it would be with these disks alone."""
    change = msgspec.structs.replace
    devices = change(vmi.spec.domain.devices, disks=list(disks))
    return change(vmi, spec=change(vmi.spec, domain=change(vmi.spec.domain, devices=devices)))
