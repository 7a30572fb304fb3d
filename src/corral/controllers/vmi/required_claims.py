"""The claims that a machine needs before it can start, and what they are like.  Pure.

Disks that are plugged in while the machine runs are not among them: it starts without these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.population import is_populated
from corral.api.kinds.storage.common import BLOCK, BOUND, FILESYSTEM, class_name
from corral.api.kinds.vmi.disks import Disk, letters
from corral.api.kinds.vmi.hotplug import hotplug_disks
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import Volume, claims_of
from corral.api.object import Condition, Document, Key
from corral.api.volume_binding import is_delayed

_FAILED = "Failed"
_NO_OVERHEAD = "0"
"""Share of a claim that a file system takes for itself: what is asked for is what a guest gets."""
_DISKS = "/var/run/kubevirt-private/vmi-disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """How the claims of a machine are.

    found: those that are there, by the volume that shows them.
    plugged: those of disks that are plugged in, by volume.
    missing: the first that is not.
    filling: whether one has yet to get its content.
    provisioning: whether one gets volume and content once it is known where it is needed: the pod
    waits for that, not the machine.
    failed: whether a DataVolume has failed for good.
    data_volumes: the DataVolumes that are there.
    """

    found: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    plugged: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    missing: str = ""
    filling: bool = False
    provisioning: bool = False
    failed: bool = False
    data_volumes: Sequence[DataVolume] = ()

    @property
    def are_ready(self) -> bool:
        """Whether the machine may have its pod: where that runs decides for what waits for it."""
        return not (self.missing or self.filling or self.failed)


NONE = Claims()
"""Of a machine that needs no claims."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where claims, DataVolumes and storage classes are looked up."""

    claim: Callable[[Key], PersistentVolumeClaim | None]
    data_volume: Callable[[Key], DataVolume | None]
    storage_class: Callable[[Key], StorageClass | None]


def at_start(spec: Spec) -> Mapping[str, str]:
    """The claims that a machine needs to start, by the volume that shows them."""
    claims = claims_of(spec.volumes)
    if not claims:
        return claims
    plugs = hotplug_disks(spec)
    return {volume: claim for volume, claim in claims.items() if volume not in plugs}


def look(vmi: VirtualMachineInstance, sources: Sources) -> Claims:
    """How the claims of a machine are at present."""
    used = claims_of(vmi.spec.volumes)
    if not used:
        return NONE
    needed, namespace = at_start(vmi.spec), vmi.metadata.namespace
    plugged = {
        volume: claim
        for volume, name in used.items()
        if volume not in needed and (claim := sources.claim(Key(namespace, name))) is not None
    }
    found: dict[str, PersistentVolumeClaim] = {}
    missing, filling, provisioning = "", False, False
    for volume, name in needed.items():
        claim = sources.claim(Key(namespace, name))
        if claim is None:
            missing = missing or name
            continue
        found[volume] = claim
        if is_delayed(sources.storage_class(Key("", class_name(claim) or ""))):
            provisioning = provisioning or not (_is_bound(claim) and is_populated(claim))
        else:
            filling = filling or not is_populated(claim)
    data_volumes = [
        data_volume
        for volume in vmi.spec.volumes
        if volume.data_volume is not None and volume.name in needed
        if (data_volume := sources.data_volume(Key(namespace, volume.data_volume.name)))
    ]
    return Claims(
        found=found,
        plugged=plugged,
        missing=missing,
        filling=filling,
        provisioning=provisioning,
        failed=any(each.status.phase == _FAILED for each in data_volumes),
        data_volumes=data_volumes,
    )


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return (claim.status and claim.status.phase) == BOUND


def conditions(claims: Claims) -> Mapping[str, Condition | None]:
    """What the machine's conditions say of its claims; None for what is not.

    The words are KubeVirt's, and then which DataVolumes it waits for, and why.
    """
    provisioning = Condition(type="Provisioning", status="True") if claims.provisioning else None
    told: dict[str, Condition | None] = {"Provisioning": provisioning}
    if claims.data_volumes:
        told["DataVolumesReady"] = _data_volumes_ready(claims.data_volumes)
    return told


def _data_volumes_ready(data_volumes: Sequence[DataVolume]) -> Condition:
    states = {_ready(each) for each in data_volumes}
    status = next((one for one in ("False", "Unknown") if one in states), "True")
    if status == "True":
        reason, message = "AllDVsReady", "All of the VMI's DVs are bound and not running"
    else:
        waited = "; ".join(_wanting(each) for each in data_volumes if _ready(each) != "True")
        reason, message = "NotAllDVsReady", f"Not all of the VMI's DVs are ready: {waited}"
    return Condition(type="DataVolumesReady", status=status, reason=reason, message=message)


def _ready(data_volume: DataVolume) -> str:
    states = (each.status for each in data_volume.status.conditions if each.type == "Ready")
    return next(states, "Unknown")


def _wanting(data_volume: DataVolume) -> str:
    """How far a DataVolume is, and what keeps it; not by how much, which changes all the time."""
    name, status = data_volume.metadata.name, data_volume.status
    why = next(
        (
            one.message
            for one in status.conditions
            if one.type == "Running" and one.status == "False" and one.message
        ),
        "",
    )
    return f"{name} is {status.phase or 'Pending'}" + (f" ({why})" if why else "")


# ----------------------------------------------------------------------- pod


def pod_volumes(spec: Spec) -> list[Document]:
    """The volumes of the machine's pod: scheduler and protection go by them."""
    needed = at_start(spec)
    return [
        {"name": volume.name, "persistentVolumeClaim": _source(volume, needed[volume.name])}
        for volume in spec.volumes
        if volume.name in needed
    ]


def _source(volume: Volume, claim: str) -> Document:
    below = volume.ephemeral.persistent_volume_claim if volume.ephemeral is not None else None
    source = volume.persistent_volume_claim or below
    if source is not None and source.read_only:
        return {"claimName": claim, "readOnly": True}
    return {"claimName": claim}


def pod_mounts(claims: Claims) -> Document:
    """Where the machine's container has its claims: a directory, or a device."""
    mounts, devices = [], []
    for volume, claim in claims.found.items():
        if (claim.spec and claim.spec.volumeMode) == BLOCK:
            devices.append({"name": volume, "devicePath": f"/dev/{volume}"})
        else:
            mounts.append({"name": volume, "mountPath": f"{_DISKS}/{volume}"})
    shown = {"volumeMounts": mounts, "volumeDevices": devices}
    return {name: listed for name, listed in shown.items() if listed}


# -------------------------------------------------------------- volumeStatus


def volume_status(vmi: VirtualMachineInstance, claims: Claims) -> list[Document] | None:
    """What is told of the machine's volumes, or None where that is told already.

    The node tells which disks are plugged in; what their claims are like is added here.  What
    others tell of a volume stays.
    """
    plugs = hotplug_disks(vmi.spec)
    before: list[Document] = msgspec.to_builtins(vmi.status.volume_status)
    others = {each["name"]: each for each in before}
    targets = dict(
        _targets(
            disk
            for disk in vmi.spec.domain.devices.disks
            if disk.name not in plugs or plugs[disk.name].is_medium  # its drive stays
        )
    )
    told: list[Document] = []
    for volume in vmi.spec.volumes:
        if volume.name in plugs:
            continue
        entry = {**others.pop(volume.name, {}), "name": volume.name}
        if volume.name in targets:
            entry["target"] = targets[volume.name]
        if (claim := claims.found.get(volume.name)) is not None:
            entry["persistentVolumeClaimInfo"] = _claim_info(claim)
        told.append(entry)
    for name, entry in others.items():
        claim = claims.plugged.get(name)
        info = {} if claim is None else {"persistentVolumeClaimInfo": _claim_info(claim)}
        told.append(entry | info)
    return None if told == before else told


def _claim_info(claim: PersistentVolumeClaim) -> Document:
    spec, status = claim.spec, claim.status
    info = {
        "claimName": claim.metadata and claim.metadata.name,
        "accessModes": spec and spec.accessModes,
        "volumeMode": (spec and spec.volumeMode) or FILESYSTEM,
        "capacity": status and status.capacity,
        "requests": spec and spec.resources and spec.resources.requests,
        "filesystemOverhead": _NO_OVERHEAD,
    }
    return {name: value for name, value in info.items() if value}


def _targets(disks: Iterable[Disk]) -> Iterator[tuple[str, str]]:
    """What a guest calls its disks: vda, vdb on virtio, sda, sdb on every other bus."""
    counts: dict[str, int] = {}
    for disk in disks:
        device = disk.disk or disk.lun or disk.cdrom
        prefix = "vd" if device is not None and device.bus == "virtio" else "sd"
        number = counts[prefix] = counts.get(prefix, -1) + 1
        yield disk.name, prefix + letters(number)
