"""The claims that a VMI needs before it can start. Pure.

Hot-plugged disks are not among them: the VMI starts without those.
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
"""``filesystemOverhead`` of a claim: the guest gets what is requested."""
_DISKS = "/var/run/kubevirt-private/vmi-disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """State of the claims of a VMI.

    found: existing claims, by volume.
    plugged: existing claims of hot-plugged disks, by volume.
    missing: name of the first missing claim.
    filling: whether a claim is not populated yet.
    provisioning: whether a claim is provisioned and populated only once its node is known: the pod
    waits for that, not the VMI.
    failed: whether a DataVolume has failed for good.
    data_volumes: existing DataVolumes.
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
        """Report whether the pod may be created: delayed binding waits for its node."""
        return not (self.missing or self.filling or self.failed)


NONE = Claims()
"""Of a VMI without claims."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Lookups of claims, DataVolumes and storage classes."""

    claim: Callable[[Key], PersistentVolumeClaim | None]
    data_volume: Callable[[Key], DataVolume | None]
    storage_class: Callable[[Key], StorageClass | None]


def at_start(spec: Spec) -> Mapping[str, str]:
    """Return the names of the claims that a VMI needs to start, by volume."""
    claims = claims_of(spec.volumes)
    if not claims:
        return claims
    plugs = hotplug_disks(spec)
    return {volume: claim for volume, claim in claims.items() if volume not in plugs}


def resolve(vmi: VirtualMachineInstance, sources: Sources) -> Claims:
    """Return the present state of the claims of a VMI."""
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
    """Return the VMI's conditions about its claims; None for one to remove.

    The messages are KubeVirt's, followed by the DataVolumes that are not ready, and why.
    """
    provisioning = Condition(type="Provisioning", status="True") if claims.provisioning else None
    desired: dict[str, Condition | None] = {"Provisioning": provisioning}
    if claims.data_volumes:
        desired["DataVolumesReady"] = _data_volumes_ready(claims.data_volumes)
    return desired


def _data_volumes_ready(data_volumes: Sequence[DataVolume]) -> Condition:
    states = {_ready(each) for each in data_volumes}
    status = next((one for one in ("False", "Unknown") if one in states), "True")
    if status == "True":
        reason, message = "AllDVsReady", "All of the VMI's DVs are bound and not running"
    else:
        unready = "; ".join(_summary(each) for each in data_volumes if _ready(each) != "True")
        reason, message = "NotAllDVsReady", f"Not all of the VMI's DVs are ready: {unready}"
    return Condition(type="DataVolumesReady", status=status, reason=reason, message=message)


def _ready(data_volume: DataVolume) -> str:
    states = (each.status for each in data_volume.status.conditions if each.type == "Ready")
    return next(states, "Unknown")


def _summary(data_volume: DataVolume) -> str:
    """Return phase and problem of a DataVolume, without the progress, which changes often."""
    name, status = data_volume.metadata.name, data_volume.status
    message = next(
        (
            one.message
            for one in status.conditions
            if one.type == "Running" and one.status == "False" and one.message
        ),
        "",
    )
    return f"{name} is {status.phase or 'Pending'}" + (f" ({message})" if message else "")


# ----------------------------------------------------------------------- pod


def pod_volumes(spec: Spec) -> list[Document]:
    """Return the volumes of the pod: scheduler and PVC protection use them."""
    needed = at_start(spec)
    return [
        {"name": volume.name, "persistentVolumeClaim": _source(volume, needed[volume.name])}
        for volume in spec.volumes
        if volume.name in needed
    ]


def _source(volume: Volume, claim: str) -> Document:
    ephemeral = volume.ephemeral.persistent_volume_claim if volume.ephemeral is not None else None
    source = volume.persistent_volume_claim or ephemeral
    if source is not None and source.read_only:
        return {"claimName": claim, "readOnly": True}
    return {"claimName": claim}


def pod_mounts(claims: Claims) -> Document:
    """Return mounts and devices of the compute container."""
    mounts, devices = [], []
    for volume, claim in claims.found.items():
        if (claim.spec and claim.spec.volumeMode) == BLOCK:
            devices.append({"name": volume, "devicePath": f"/dev/{volume}"})
        else:
            mounts.append({"name": volume, "mountPath": f"{_DISKS}/{volume}"})
    fields = {"volumeMounts": mounts, "volumeDevices": devices}
    return {name: entries for name, entries in fields.items() if entries}


# -------------------------------------------------------------- volumeStatus


def volume_status(vmi: VirtualMachineInstance, claims: Claims) -> list[Document] | None:
    """Return the new ``status.volumeStatus``, or None if it does not change.

    The node writes the entries of hot-plugged disks; here their claims are added. Fields that
    others write are kept.
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
    entries: list[Document] = []
    for volume in vmi.spec.volumes:
        if volume.name in plugs:
            continue
        entry = {**others.pop(volume.name, {}), "name": volume.name}
        if volume.name in targets:
            entry["target"] = targets[volume.name]
        if (claim := claims.found.get(volume.name)) is not None:
            entry["persistentVolumeClaimInfo"] = _claim_info(claim)
        entries.append(entry)
    for name, entry in others.items():
        claim = claims.plugged.get(name)
        info = {} if claim is None else {"persistentVolumeClaimInfo": _claim_info(claim)}
        entries.append(entry | info)
    return None if entries == before else entries


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
    """Yield the device names of disks: vda, vdb on virtio, sda, sdb on every other bus."""
    counts: dict[str, int] = {}
    for disk in disks:
        device = disk.disk or disk.lun or disk.cdrom
        prefix = "vd" if device is not None and device.bus == "virtio" else "sd"
        number = counts[prefix] = counts.get(prefix, -1) + 1
        yield disk.name, prefix + letters(number)
