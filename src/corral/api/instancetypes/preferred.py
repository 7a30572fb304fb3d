"""What a preference makes of a machine's spec: it counts where the spec says nothing."""

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
"""Which devices there are that nobody named."""

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
"""Fields of a preference, and the field of a machine's spec that each is for."""

_OF_DISKS: Mapping[str, Mapping[str, str]] = {
    "disk": {
        "preferredDiskBus": "disk.bus",
        "preferredDiskBlockSize": "blockSize",
        "preferredDiskCache": "cache",
        "preferredDiskIO": "io",
    },
    "cdrom": {"preferredCdromBus": "cdrom.bus"},
    "lun": {"preferredLunBus": "lun.bus"},
}
"""The same for disks, by the device that a disk is."""

_OF_INPUTS: Mapping[str, str] = {"preferredInputBus": "bus", "preferredInputType": "type"}
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
    """Put a preference into a machine's spec, in place."""
    said: Document = msgspec.to_builtins(preference)
    _fill(said, spec, _PREFERRED)
    _clock(said, spec)
    _firmware(said.get("firmware") or {}, spec)
    hyperv = get(said, "features.preferredHyperv")
    if hyperv and not get(spec, "domain.features.hypervPassthrough.enabled"):
        own = get(spec, "domain.features.hyperv") or {}
        put(spec, "domain.features.hyperv", {**hyperv, **own})
    if devices := said.get("devices"):
        _devices(devices, spec)


def prefer_attached(preference: PreferenceSpec, spec: Document) -> None:
    """Put in what decides which devices there are, before there are any, in place."""
    _fill(msgspec.to_builtins(preference), spec, _ATTACHED)


def _fill(said: Document, target: Document, fields: Mapping[str, str]) -> None:
    for source, field in fields.items():
        value = get(said, source)
        if value not in (None, "") and get(target, field) in (None, "", []):
            put(target, field, value)


def _clock(said: Document, spec: Document) -> None:
    offset = get(said, "clock.preferredClockOffset")
    clock = get(spec, "domain.clock") or {}
    if offset and not clock.keys() & {"utc", "timezone"}:
        put(spec, "domain.clock", {**clock, **offset})


def _firmware(said: Document, spec: Document) -> None:
    """Which firmware starts the guest, unless the spec says so; the old spellings come last."""
    loader = get(spec, "domain.firmware.bootloader") or {}
    if not loader.keys() & {"bios", "efi"}:
        if said.get("preferredUseBios"):
            loader = {"bios": {}}
        elif (efi := said.get("preferredEfi")) is not None:
            loader = {"efi": efi}
        elif said.get("preferredUseEfi"):
            secure = said.get("preferredUseSecureBoot")
            loader = {"efi": {} if secure is None else {"secureBoot": secure}}
    serial = said.get("preferredUseBiosSerial")
    if serial is not None and "bios" in loader:
        loader = {"bios": {"useSerial": serial, **(loader["bios"] or {})}}
    if loader:
        put(spec, "domain.firmware.bootloader", loader)


def _devices(said: Document, spec: Document) -> None:
    devices = spec["domain"].get("devices") or {}
    for disk in devices.get("disks") or ():
        kind = next((kind for kind in _OF_DISKS if disk.get(kind) is not None), "disk")
        if disk.get(kind) is None:
            disk[kind] = {}
        _fill(said, disk, _OF_DISKS[kind])
        if get(disk, "disk.bus") == "virtio":
            _fill(said, disk, {"preferredDiskDedicatedIoThread": "dedicatedIOThread"})
    for each in devices.get("inputs") or ():
        _fill(said, each, _OF_INPUTS)
    of_pod = {net["name"] for net in spec.get("networks") or () if net.get("pod") is not None}
    for interface in devices.get("interfaces") or ():
        _fill(said, interface, {"preferredInterfaceModel": "model"})
        bound = any(interface.get(name) is not None for name in _BINDINGS)
        masquerade = said.get("preferredInterfaceMasquerade")
        if masquerade is not None and not bound and interface.get("name") in of_pod:
            interface["masquerade"] = masquerade
    if devices.get("sound") is not None:
        _fill(said, devices["sound"], {"preferredSoundModel": "model"})
    _panic(said.get("preferredPanicDeviceModel"), devices)


def _panic(model: str | None, devices: Document) -> None:
    """A device by which a crashing guest says so, of the preferred model where none is named."""
    if model is None:
        return
    present = devices.get("panicDevices") or [{}]
    devices["panicDevices"] = [{"model": model, **each} for each in present]


def preferred_storage_class(preference: PreferenceSpec | None) -> str:
    """The storage class of a VirtualMachine's DataVolumes that name none; empty: no preference."""
    volumes = preference.volumes if preference is not None else None
    return volumes.preferred_storage_class_name if volumes is not None else ""
