"""Requests to hotplug and unplug volumes: KubeVirt's VolumeRequests.  No I/O.

A request is applied to the spec of a VMI or of a template; applying it is idempotent.
"""

from collections.abc import Iterator, Sequence

import msgspec

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.hotplug import BUSES
from corral.api.object import Document

ADD, REMOVE = "addVolumeOptions", "removeVolumeOptions"
SOURCES = ("persistentVolumeClaim", "dataVolume")
"""Volume sources that can be hotplugged."""
FIELD = "Status.volumeRequests"
"""The field that KubeVirt names in the causes of invalid requests."""
_CLAIM = {"persistentVolumeClaim": "claimName", "dataVolume": "name"}


def name_of(request: Document) -> str:
    """Return the name of the volume that a request adds or removes."""
    name: str = request[ADD if ADD in request else REMOVE]["name"]
    return name


def faults(request: Document) -> Iterator[Cause]:
    """Check the disk to be added, and its source; the messages are KubeVirt's."""
    options = request.get(ADD)
    if options is None:
        return
    source = options["volumeSource"]
    if sum(source.get(each) is not None for each in SOURCES) != 1:
        message = "must have exactly one of persistentVolumeClaim and dataVolume set"
        yield Cause(FIELD, f"AddVolume request for [{options['name']}]: volumeSource {message}")
    try:
        disk = msgspec.convert(options["disk"], Disk)
    except msgspec.ValidationError as error:
        yield Cause(FIELD, f"AddVolume request for [{options['name']}]: disk: {error}")
        return
    if fault := _disk_fault(disk):
        yield Cause(FIELD, f"AddVolume request for {fault}")


def _disk_fault(disk: Disk) -> str:
    name = disk.name
    if disk.disk is None and disk.lun is None:
        return f"[{name}] requires diskDevice of type 'disk' or 'lun' to be used."
    if disk.disk is not None and disk.disk.bus not in BUSES:
        why = f"requires bus to be 'scsi' or 'virtio'. [{disk.disk.bus}] is not permitted."
        return f"disk [{name}] {why}"
    if disk.lun is not None and disk.lun.bus != "scsi":
        return f"LUN [{name}] requires bus to be 'scsi'. [{disk.lun.bus}] is not permitted."
    if disk.dedicated_io_thread and disk.disk is not None and disk.disk.bus != "virtio":
        return f"[{name}] requires virtio bus for IOThreads."
    return ""


def conflict(request: Document, volumes: Sequence[Document]) -> str:
    """Return why a request conflicts with a VMI's volumes, or nothing (verifyVolumeOption)."""
    name = name_of(request)
    if ADD in request:
        claim = _claim_of(request[ADD]["volumeSource"])
        for volume in volumes:
            if volume["name"] == name:
                return f"Unable to add volume [{name}] because volume with that name already exists"
            if claim and _claim_of(volume) == claim:
                return f"Unable to add volume source [{claim}] because it already exists"
        return ""
    found = _volume_named(volumes, name)
    if found is None:
        return f"Unable to remove volume [{name}] because it does not exist"
    if not any(at(found, source, "hotpluggable") for source in SOURCES):
        return f"Unable to remove volume [{found['name']}] because it is not hotpluggable"
    return ""


def applied(request: Document, spec: Document) -> Document:
    """Return a VMI's spec with a request applied."""
    volumes: list[Document] = list(spec.get("volumes") or ())
    disks: list[Document] = list(at(spec, "domain", "devices", "disks") or ())
    if ADD in request:
        options = request[ADD]
        if all(volume["name"] != options["name"] for volume in volumes):
            volumes.append({"name": options["name"], **options["volumeSource"]})
            disks.append(options["disk"])
    elif (found := _volume_named(volumes, name_of(request))) is not None:
        volumes = [volume for volume in volumes if volume is not found]
        disks = [disk for disk in disks if disk["name"] != found["name"]]
    return with_disks(spec, volumes, disks)


def with_disks(spec: Document, volumes: list[Document], disks: list[Document]) -> Document:
    """Return a VMI's spec with these volumes and disks."""
    domain = spec.get("domain") or {}
    devices = {**(domain.get("devices") or {}), "disks": disks}
    return {**spec, "volumes": volumes, "domain": {**domain, "devices": devices}}


def _volume_named(volumes: Sequence[Document], name: str) -> Document | None:
    """Return the volume of that name, else the one whose claim has that name."""
    by_name = (volume for volume in volumes if volume["name"] == name)
    by_claim = (volume for volume in volumes if _claim_of(volume) == name)
    return next(by_name, None) or next(by_claim, None)


def _claim_of(source: Document) -> str:
    for kind, field in _CLAIM.items():
        if source.get(kind) is not None:
            return str(source[kind].get(field) or "")
    return ""
