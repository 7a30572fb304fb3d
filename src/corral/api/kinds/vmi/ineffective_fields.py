"""Fields of a VMI's spec that have no effect here, and the errors and warnings about them.

The schema has all fields of KubeVirt, so that manifests are portable, but not all are implemented.
A field is refused if the guest would come up without its data, its network, its protection or a
device that it needs; every other field without effect is accepted with a warning that names it.
No field is ignored silently: fields that are in no table here get a warning.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from corral.api.errors import MAX_CAUSES, Cause
from corral.api.kind import at

Tree = Mapping[str, Any]
"""Fields of an object: True (implemented), a frozenset (the implemented values), a Tree of nested
fields, or text: why the field is refused."""

SWITCHED_ON: Tree = {"enabled": frozenset({True})}
"""A feature that every machine has: it can be enabled, not disabled."""
_LACKS = "the guest would start without "
UNSET: tuple[Any, ...] = (None, False, "", [])
"""Values that count as unset.  An empty object does not: ``watchdog: {}`` requests a watchdog."""

DISK: Tree = {
    "name": True,
    "disk": {"bus": True, "readonly": True},
    "cdrom": {"bus": True, "readonly": frozenset({True}), "tray": frozenset({"closed"})},
    "lun": {"bus": True, "readonly": True, "reservation": "no other host would respect it"},
    "bootOrder": True,
    "serial": True,
    "cache": True,
    "io": True,
    "dedicatedIOThread": True,
    "shareable": True,
    "errorPolicy": True,
    "blockSize": True,
}
INTERFACE: Tree = {
    "name": True,
    "model": True,
    "bridge": True,
    "masquerade": True,
    "macAddress": True,
    "bootOrder": True,
    "acpiIndex": True,
    "ports": True,
    "dhcpOptions": True,
    "state": True,
    "sriov": _LACKS + "its network device",
    "slirp": "KubeVirt dropped it in 1.3; use masquerade",
    "macvtap": "KubeVirt dropped it in 1.3; use masquerade",
    "passt": "KubeVirt dropped it in 1.3; use masquerade",
    "passtBinding": "use masquerade",
    "binding": "there are no binding plugins; use masquerade",
}
DEVICES: Tree = {
    "disks": DISK,
    "interfaces": INTERFACE,
    "rng": True,
    "autoattachPodInterface": True,
    "autoattachGraphicsDevice": True,
    "autoattachSerialConsole": True,
    "autoattachMemBalloon": True,
    "autoattachInputDevice": True,
    "logSerialConsole": True,
    "inputs": True,
    "video": {"type": frozenset({"vga", "bochs"})},
    "watchdog": {"name": True, "i6300esb": True},
    "panicDevices": {"model": frozenset({"isa", "pvpanic"})},
    "disableHotplug": True,
    "filesystems": _LACKS + "the files that it shares",
    "gpus": _LACKS + "its device",
    "hostDevices": _LACKS + "its device",
    "tpm": _LACKS + "the secrets that it keeps",
}
DOMAIN: Tree = {
    "devices": DEVICES,
    "resources": {"requests": True, "limits": True},
    "cpu": {
        "cores": True,
        "sockets": True,
        "maxSockets": True,
        "threads": True,
        "model": frozenset({"host-model", "host-passthrough"}),
    },
    "memory": {"guest": True, "maxGuest": True},
    "machine": {"type": True},
    "firmware": {
        "uuid": True,
        "serial": True,
        "bootloader": {
            "bios": {},
            "efi": "a guest that needs UEFI firmware would not start",
        },
        "kernelBoot": "the guest would start another kernel, or none",
    },
    "clock": {"utc": {}},
    "features": {"acpi": True, "apic": SWITCHED_ON},
    "chassis": True,
    "launchSecurity": "the guest's memory would not be protected from its host",
    "rebootPolicy": True,
}
_NO_SOURCE = _LACKS + "its data"
VOLUME: Tree = {
    "name": True,
    "containerDisk": True,
    "cloudInitNoCloud": True,
    "emptyDisk": True,
    "cloudInitConfigDrive": True,
    "ephemeral": True,
    "persistentVolumeClaim": True,
    "dataVolume": True,
    "configMap": True,
    "secret": True,
    "serviceAccount": True,
    "hostDisk": True,
    "sysprep": True,
    "downwardAPI": {
        "volumeLabel": True,
        "fields": {"path": True, "fieldRef": True, "resourceFieldRef": _LACKS + "this figure"},
    },
    **dict.fromkeys(
        (
            "downwardMetrics",
            "memoryDump",
            "containerPath",
        ),
        _NO_SOURCE,
    ),
}
PROBE: Tree = {
    "httpGet": True,
    "tcpSocket": True,
    "exec": True,
    "guestAgentPing": {},
    "initialDelaySeconds": True,
    "timeoutSeconds": True,
    "periodSeconds": True,
    "successThreshold": True,
    "failureThreshold": True,
}
_NO_NETWORK = "the guest would be on another network than the one it asks for"
NETWORK: Tree = {
    "name": True,
    "pod": {"vmNetworkCIDR": True, "vmIPv6NetworkCIDR": True},
    "multus": _NO_NETWORK,
    "resourceClaim": _NO_NETWORK,
}
SPEC: Tree = {
    "domain": DOMAIN,
    "volumes": VOLUME,
    "networks": NETWORK,
    "accessCredentials": True,
    "architecture": True,
    "terminationGracePeriodSeconds": True,
    "hostname": True,
    "subdomain": True,
    "dnsPolicy": True,
    "dnsConfig": {"nameservers": True, "searches": True},
    "nodeSelector": True,
    "affinity": {"nodeAffinity": True},
    "tolerations": True,
    "schedulerName": True,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "evictionStrategy": True,
    "startStrategy": True,
    "resourceClaims": _LACKS + "its devices",
    "utilityVolumes": "there are no claims",
}


def check_effects(spec: dict[str, Any], path: str) -> tuple[list[Cause], list[str]]:
    """Return the causes and the warnings about fields of a spec that have no effect."""
    causes: list[Cause] = []
    warnings: list[str] = []
    for field, reason in _ineffective_fields(spec, SPEC, path):
        if reason and len(causes) < MAX_CAUSES:
            message = f"{field} is not supported by this version: {reason}"
            causes.append(Cause(field, message, "FieldValueNotSupported"))
        elif not reason and len(warnings) < MAX_CAUSES:
            warnings.append(f"{field} has no effect in this version")
    return causes, warnings + list(_emulation_warnings(spec, path))


def _emulation_warnings(spec: dict[str, Any], path: str) -> Iterator[str]:
    """Warn of devices that are emulated where the spec requests passthrough."""
    for index, disk in enumerate(at(spec, "domain", "devices", "disks") or ()):
        if disk.get("lun") is not None:
            here = f"{path}.domain.devices.disks[{index}].lun"
            yield f"{here}: volumes are files, so QEMU itself answers the guest's SCSI commands"


def _ineffective_fields(document: Tree, tree: Tree, path: str) -> Iterator[tuple[str, str]]:
    """Yield each field without effect: its path, and why it is refused (empty: it is not)."""
    for name, value in document.items():
        support = tree.get(name)
        if support is True or value is None or value == "":
            continue
        here = f"{path}.{name}"
        if isinstance(support, frozenset):
            if value not in support:
                yield here, ""
        elif value in UNSET:
            continue
        elif support is None or isinstance(support, str):
            yield here, support or ""
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from _ineffective_fields(item, support, f"{here}[{index}]")
        else:
            yield from _ineffective_fields(value, support, here)
