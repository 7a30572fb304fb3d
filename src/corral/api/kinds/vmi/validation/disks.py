"""Rules for disks."""

from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.vmi.disks import Disk
from corral.api.kinds.vmi.validation.capacity import check_serial
from corral.api.kinds.vmi.vmi import Spec
from corral.api.names import label_faults

BUSES = ("virtio", "scsi", "sata", "usb")
CACHES = ("none", "writethrough", "writeback", "directsync")
ERROR_POLICIES = ("stop", "ignore", "report", "enospace")
SMALLEST_BLOCK = 512
LARGEST_BLOCK = 2 * 1024 * 1024


def check_pairs(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that every disk has a volume; ``lun`` needs a claim.

    A CD-ROM drive may be empty (KubeVirt's feature gate DeclarativeHotplugVolumes).
    """
    volumes = {volume.name: volume for volume in spec.volumes}
    for index, disk in enumerate(spec.domain.devices.disks):
        here = f"{path}.domain.devices.disks[{index}]"
        volume = volumes.get(disk.name)
        if volume is None and disk.cdrom is not None:
            continue
        if volume is None:
            # KubeVirt's own message spells the field with a capital letter.
            yield Cause(f"{here}.name", f"{here}.Name '{disk.name}' not found.")
        elif disk.lun is not None and not (volume.persistent_volume_claim or volume.data_volume):
            message = "can only be mapped to a DataVolume or PersistentVolumeClaim volume."
            yield Cause(f"{here}.lun", f"{here}.lun {message}")


def check_boot_order(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that boot orders begin at 1 and are unique among disks and interfaces."""
    devices = spec.domain.devices
    used: set[int] = set()
    orders = [(f"disks[{index}]", disk.boot_order) for index, disk in enumerate(devices.disks)]
    orders += [
        (f"interfaces[{index}]", interface.boot_order)
        for index, interface in enumerate(devices.interfaces)
    ]
    for device, order in orders:
        if order is None:
            continue
        here = f"{path}.domain.devices.{device}"
        if order < 1:
            yield Cause(f"{here}.bootOrder", f"{here} must have a boot order > 0, if supplied")
        elif order in used:
            message = f"Boot order for {here}.bootOrder already set for a different device."
            yield Cause(f"{here}.bootOrder", message)
        used.add(order)


def check_names(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that names of disks are unique, and valid names of containers."""
    first: dict[str, int] = {}
    for index, disk in enumerate(spec.domain.devices.disks):
        disks = f"{path}.domain.devices.disks"
        field = f"{disks}[{index}].name"
        if disk.name in first:
            other = f"{disks}[{first[disk.name]}]"
            yield Cause(field, f"{disks}[{index}] and {other} must not have the same Name.")
        first.setdefault(disk.name, index)
        for fault in label_faults(disk.name):
            yield Cause(field, fault)


def check_disks(spec: Spec, path: str) -> Iterator[Cause]:
    """Check the fields of each disk."""
    for index, disk in enumerate(spec.domain.devices.disks):
        here = f"{path}.domain.devices.disks[{index}]"
        yield from _check_device(disk, here)
        if disk.serial:
            yield from check_serial(disk.serial, f"{here}.serial", here)
        if disk.cache and disk.cache not in CACHES:
            yield Cause(f"{here}.cache", f"{here}.cache has invalid value {disk.cache}")
        if disk.io not in ("", "native", "threads"):
            message = f"Disk IO mode for {here} is not supported. Supported modes are: "
            yield Cause(f"{here}.io", f"{message}native, threads.", "FieldValueNotSupported")
        if disk.error_policy is not None and disk.error_policy not in ERROR_POLICIES:
            field = f"{here}.errorPolicy"
            yield Cause(field, f'{field} has invalid value "{disk.error_policy}"')
        yield from _check_block_size(disk, here)


def _check_device(disk: Disk, here: str) -> Iterator[Cause]:
    devices = {"disk": disk.disk, "lun": disk.lun, "cdrom": disk.cdrom}
    chosen = {name: device for name, device in devices.items() if device is not None}
    if len(chosen) > 1:
        yield Cause(here, f"{here} can only have a single target type defined")
    for name, device in chosen.items():
        yield from _check_bus(disk, name, device.bus, here)


def _check_bus(disk: Disk, device: str, bus: str, here: str) -> Iterator[Cause]:
    field = f"{here}.{device}.bus"
    if bus == "ide":
        yield Cause(field, "IDE bus is not supported")
    elif bus == "virtio" and device == "cdrom":
        yield Cause(field, f"Bus type {bus} is invalid for CD-ROM device")
    elif bus == "sata" and disk.disk is not None and disk.disk.readonly:
        yield Cause(field, f"{bus} hard-disks do not support read-only.")
    elif bus and bus not in BUSES:
        allowed = " ".join(BUSES)
        message = f"{here} is set with an unrecognized bus {bus}, must be one of: [{allowed}]"
        yield Cause(field, message)
    if disk.dedicated_io_thread and bus not in ("", "virtio"):
        message = f"IOThreads are not supported for disks on a {bus} bus"
        yield Cause(here, message, "FieldValueNotSupported")


def _check_block_size(disk: Disk, here: str) -> Iterator[Cause]:
    if disk.block_size is None or disk.block_size.custom is None:
        return
    match, custom = disk.block_size.match_volume, disk.block_size.custom
    field = f"{here}.blockSize"
    if match is not None and match.enabled is not False:
        yield Cause(field, "Block size matching can't be enabled together with a custom value")
        return
    if custom.logical > custom.physical:
        message = f"Logical size {custom.logical} must be the same or less than the physical size"
        yield Cause(f"{field}.custom.logical", f"{message} of {custom.physical}")
        return
    if disk.disk is not None and disk.disk.bus == "sata" and custom.logical != SMALLEST_BLOCK:
        message = f"Logical size {custom.logical} must be {SMALLEST_BLOCK} for SATA devices"
        yield Cause(f"{field}.custom.logical", message)
        return
    for name, size in (("logical", custom.logical), ("physical", custom.physical)):
        if fault := _size_fault(size):
            yield Cause(f"{field}.custom.{name}", f"Provided size of {size} is {fault}")


def _size_fault(size: int) -> str:
    if size < SMALLEST_BLOCK:
        return f"less than the supported minimum size of {SMALLEST_BLOCK}"
    if size > LARGEST_BLOCK:
        return f"greater than the supported maximum size of {LARGEST_BLOCK}"
    return "not a power of 2" if size & (size - 1) else ""


RULES = (check_pairs, check_boot_order, check_names, check_disks)
