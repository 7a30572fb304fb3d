"""Preferences: defaults for fields that the spec of a VMI leaves open."""

from collections.abc import Mapping

import msgspec

from corral.api.instancetypes.fields import get, put
from corral.api.kinds.kubevirt.instancetype import PreferenceSpec
from corral.api.object import Document

_ATTACHED: Mapping[str, str] = {
    "devices.preferredAutoattachGraphicsDevice": "domain.devices.autoattachGraphicsDevice",
    "devices.preferredAutoattachMemBalloon": "domain.devices.autoattachMemBalloon",
    "devices.preferredAutoattachPodInterface": "domain.devices.autoattachPodInterface",
    "devices.preferredAutoattachSerialConsole": "domain.devices.autoattachSerialConsole",
    "devices.preferredAutoattachInputDevice": "domain.devices.autoattachInputDevice",
}
"""Fields that decide on automatically attached devices."""

_PREFERRED: Mapping[str, str] = {
    "cpu.preferredCPUFeatures": "domain.cpu.features",
    **_ATTACHED,
    "devices.preferredUseVirtioTransitional": "domain.devices.useVirtioTransitional",
    "devices.preferredBlockMultiQueue": "domain.devices.blockMultiQueue",
    "devices.preferredNetworkInterfaceMultiQueue": "domain.devices.networkInterfaceMultiqueue",
    "devices.preferredDisableHotplug": "domain.devices.disableHotplug",
    "devices.preferredRng": "domain.devices.rng",
    "devices.preferredTPM": "domain.devices.tpm",
    "features.preferredAcpi": "domain.features.acpi",
    "features.preferredApic": "domain.features.apic",
    "features.preferredKvm": "domain.features.kvm",
    "features.preferredPvspinlock": "domain.features.pvspinlock",
    "features.preferredSmm": "domain.features.smm",
    "machine.preferredMachineType": "domain.machine.type",
    "clock.preferredTimer": "domain.clock.timer",
    "preferredSubdomain": "subdomain",
    "preferredTerminationGracePeriodSeconds": "terminationGracePeriodSeconds",
    "preferredArchitecture": "architecture",
}
"""Fields of a preference, and the field of the spec that each is a default for."""

_DISK_FIELDS: Mapping[str, Mapping[str, str]] = {
    "disk": {
        "preferredDiskBus": "disk.bus",
        "preferredDiskBlockSize": "blockSize",
        "preferredDiskCache": "cache",
        "preferredDiskIO": "io",
    },
    "cdrom": {"preferredCdromBus": "cdrom.bus"},
    "lun": {"preferredLunBus": "lun.bus"},
}
"""The same for disks, by the type of device."""

_INPUT_FIELDS: Mapping[str, str] = {"preferredInputBus": "bus", "preferredInputType": "type"}
_BINDINGS = (
    "bridge",
    "masquerade",
    "sriov",
    "slirp",
    "macvtap",
    "passt",
    "passtBinding",
    "binding",
)


def prefer(preference: PreferenceSpec, spec: Document) -> None:
    """Apply a preference to a spec, in place."""
    preferred: Document = msgspec.to_builtins(preference)
    _fill(preferred, spec, _PREFERRED)
    _clock(preferred, spec)
    _firmware(preferred.get("firmware") or {}, spec)
    hyperv = get(preferred, "features.preferredHyperv")
    if hyperv and not get(spec, "domain.features.hypervPassthrough.enabled"):
        own = get(spec, "domain.features.hyperv") or {}
        put(spec, "domain.features.hyperv", {**hyperv, **own})
    if devices := preferred.get("devices"):
        _devices(devices, spec)


def prefer_attached(preference: PreferenceSpec, spec: Document) -> None:
    """Apply the fields on attached devices, in place; comes before the devices are added."""
    _fill(msgspec.to_builtins(preference), spec, _ATTACHED)


def _fill(preferred: Document, target: Document, fields: Mapping[str, str]) -> None:
    for source, field in fields.items():
        value = get(preferred, source)
        if value not in (None, "") and get(target, field) in (None, "", []):
            put(target, field, value)


def _clock(preferred: Document, spec: Document) -> None:
    offset = get(preferred, "clock.preferredClockOffset")
    clock = get(spec, "domain.clock") or {}
    if offset and not clock.keys() & {"utc", "timezone"}:
        put(spec, "domain.clock", {**clock, **offset})


def _firmware(preferred: Document, spec: Document) -> None:
    """Set the boot loader unless the spec has one; deprecated fields have the lowest precedence."""
    loader = get(spec, "domain.firmware.bootloader") or {}
    if not loader.keys() & {"bios", "efi"}:
        if preferred.get("preferredUseBios"):
            loader = {"bios": {}}
        elif (efi := preferred.get("preferredEfi")) is not None:
            loader = {"efi": efi}
        elif preferred.get("preferredUseEfi"):
            secure = preferred.get("preferredUseSecureBoot")
            loader = {"efi": {} if secure is None else {"secureBoot": secure}}
    serial = preferred.get("preferredUseBiosSerial")
    if serial is not None and "bios" in loader:
        loader = {"bios": {"useSerial": serial, **(loader["bios"] or {})}}
    if loader:
        put(spec, "domain.firmware.bootloader", loader)


def _devices(preferred: Document, spec: Document) -> None:
    devices = spec["domain"].get("devices") or {}
    for disk in devices.get("disks") or ():
        kind = next((kind for kind in _DISK_FIELDS if disk.get(kind) is not None), "disk")
        if disk.get(kind) is None:
            disk[kind] = {}
        _fill(preferred, disk, _DISK_FIELDS[kind])
        if get(disk, "disk.bus") == "virtio":
            _fill(preferred, disk, {"preferredDiskDedicatedIoThread": "dedicatedIOThread"})
    for each in devices.get("inputs") or ():
        _fill(preferred, each, _INPUT_FIELDS)
    pod_networks = {net["name"] for net in spec.get("networks") or () if net.get("pod") is not None}
    for interface in devices.get("interfaces") or ():
        _fill(preferred, interface, {"preferredInterfaceModel": "model"})
        bound = any(interface.get(name) is not None for name in _BINDINGS)
        masquerade = preferred.get("preferredInterfaceMasquerade")
        if masquerade is not None and not bound and interface.get("name") in pod_networks:
            interface["masquerade"] = masquerade
    if devices.get("sound") is not None:
        _fill(preferred, devices["sound"], {"preferredSoundModel": "model"})
    _panic(preferred.get("preferredPanicDeviceModel"), devices)


def _panic(model: str | None, devices: Document) -> None:
    """Set the preferred model of panic devices without one; add one if there is none."""
    if model is None:
        return
    present = devices.get("panicDevices") or [{}]
    devices["panicDevices"] = [{"model": model, **each} for each in present]


def preferred_storage_class(preference: PreferenceSpec | None) -> str:
    """Return the storage class for DataVolumes without one; "" if there is no preference."""
    volumes = preference.volumes if preference is not None else None
    return volumes.preferred_storage_class_name if volumes is not None else ""
