"""Defaults of VMIs: KubeVirt's mutating webhook, field by field.

All defaults are set on create, because the spec is immutable afterwards.  The order of the steps
matters: disks are added before they get a bus, and CPUs are counted from requests, which are copied
from limits first.
"""

from collections.abc import Callable
from typing import Any

from corral.api.images import pull_policy
from corral.api.kind import at
from corral.api.kinds.vmi.derived import default_guest_memory, sockets
from corral.api.kinds.vmi.vmi import FINALIZER
from corral.api.object import Document
from corral.api.uid import random_uuid

ARCHITECTURE = "amd64"
BUS = "sata"
CPU_MODEL = "host-model"
MACHINE = "q35"
RUNTIME_USER = 107
"""The user id of KubeVirt's launcher; in the status for the sake of its clients."""
TOPOLOGY = ("sockets", "cores", "threads")
PCI_TOPOLOGY = "kubevirt.io/pci-topology-version"

_REVISION = "virtualMachineRevisionName"
_DEVICES = ("disk", "cdrom", "lun")
_PROBES = ("readinessProbe", "livenessProbe")


def default_new_instance(document: Document) -> None:
    """Default a new VirtualMachineInstance, in place."""
    spec = document["spec"]
    for complete in STEPS:
        complete(spec)
    _default_metadata(document["metadata"])
    revision = _revision_status(document)  # before the status is replaced
    document["status"] = _initial_status(
        spec["domain"], document["metadata"].get("creationTimestamp")
    )
    document["status"] |= revision


def _revision_status(document: Document) -> dict[str, Any]:
    """Return the ControllerRevision of a new VMI's status, the one field that its creator sets."""
    name = at(document, "status", _REVISION)
    return {_REVISION: name} if name else {}


def _initial_status(domain: dict[str, Any], now: str | None) -> dict[str, Any]:
    status: dict[str, Any] = {
        "phase": "Pending",
        "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": now}],
        "runtimeUser": RUNTIME_USER,
        "currentCPUTopology": {part: domain["cpu"].get(part) or 1 for part in TOPOLOGY},
    }
    if guest := domain["memory"].get("guest"):
        parts = ("guestAtBoot", "guestCurrent", "guestRequested")
        status["memory"] = dict.fromkeys(parts, guest)
    return status


def _default_machine_type(spec: Document) -> None:
    spec.setdefault("architecture", ARCHITECTURE)
    domain = spec["domain"]
    machine = domain.setdefault("machine", {})
    if not machine.get("type"):
        machine["type"] = MACHINE


def _default_firmware(spec: Document) -> None:
    domain = spec["domain"]
    firmware = domain.setdefault("firmware", {})
    if not firmware.get("uuid"):
        firmware["uuid"] = random_uuid()
    domain.setdefault("features", {}).setdefault("acpi", {}).setdefault("enabled", True)


def _default_cpu_request(spec: Document) -> None:
    """Default the CPU request to the limit; the memory request is left to the launcher pod."""
    resources = spec["domain"].get("resources") or {}
    if limit := (resources.get("limits") or {}).get("cpu"):
        resources.setdefault("requests", {}).setdefault("cpu", limit)


def _default_memory(spec: Document) -> None:
    """Default the guest's memory to the request, else the limit, else one huge page."""
    domain = spec["domain"]
    memory = domain.setdefault("memory", {})
    if "guest" in memory:
        return
    resources = domain.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    guest = default_guest_memory(requests, limits, (memory.get("hugepages") or {}).get("pageSize"))
    if guest is not None:
        memory["guest"] = guest


def _default_cpu_topology(spec: Document) -> None:
    """Default to as many sockets as the CPU limit or request needs, rounded up; at least one."""
    domain = spec["domain"]
    cpu = domain.setdefault("cpu", {})
    if not any(cpu.get(part) for part in TOPOLOGY):
        resources = domain.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        cpu.update(sockets=sockets(limits, requests), cores=1, threads=1)


def _default_cpu_model(spec: Document) -> None:
    cpu = spec["domain"]["cpu"]
    if not cpu.get("model"):
        cpu["model"] = CPU_MODEL


def _add_missing_disks(spec: Document) -> None:
    """Add a disk for each volume that has none."""
    devices = spec["domain"]["devices"]
    disks = devices.setdefault("disks", [])
    attached = {one.get("name") for one in (*disks, *(devices.get("filesystems") or ()))}
    disks += [
        {"name": volume["name"]}
        for volume in spec.get("volumes") or ()
        if volume["name"] not in attached and "memoryDump" not in volume
    ]
    if not disks:
        del devices["disks"]


def _default_disk_buses(spec: Document) -> None:
    """Default the target of each disk, and the bus of each target."""
    devices = spec["domain"]["devices"]
    for disk in devices.get("disks") or ():
        kind = next((kind for kind in _DEVICES if kind in disk), "disk")
        device = disk.setdefault(kind, {})
        if not device.get("bus"):
            device["bus"] = BUS
        if kind == "cdrom":
            device.setdefault("readonly", True)
            if not device.get("tray"):
                device["tray"] = "closed"


def _add_input_device(spec: Document) -> None:
    """Add an input device if ``autoattachInputDevice`` asks for one.

    KubeVirt does this for VirtualMachines only, whose preference may set its type.
    """
    devices = spec["domain"]["devices"]
    if devices.get("autoattachInputDevice") and not devices.get("inputs"):
        devices["inputs"] = [{"name": "default-0"}]


def default_input_devices(spec: Document) -> None:
    """Default the bus and the type of each input device."""
    for device in spec["domain"]["devices"].get("inputs") or ():
        for field, default in (("bus", "usb"), ("type", "tablet")):
            device[field] = device.get(field) or default


def _add_pod_network(spec: Document) -> None:
    """Add the pod network to a VMI without networks and interfaces."""
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False:
        return
    if not spec.get("networks") and not devices.get("interfaces"):
        spec["networks"] = [{"name": "default", "pod": {}}]
        devices["interfaces"] = [{"name": "default", "bridge": {}}]


def _default_pull_policies(spec: Document) -> None:
    images = [volume.get("containerDisk") for volume in spec.get("volumes") or ()]
    firmware = spec["domain"].get("firmware") or {}
    images.append((firmware.get("kernelBoot") or {}).get("container"))
    for source in images:
        if source and not source.get("imagePullPolicy"):
            source["imagePullPolicy"] = pull_policy(source.get("image") or "")


def _default_probes(spec: Document) -> None:
    for name in _PROBES:
        if probe := spec.get(name):
            for field, seconds in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                probe[field] = probe.get(field) or seconds


def _default_metadata(metadata: dict[str, Any]) -> None:
    finalizers = metadata.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    metadata.setdefault("annotations", {})[PCI_TOPOLOGY] = "v3"


DEVICE_STEPS: tuple[Callable[[Document], None], ...] = (
    _add_missing_disks,
    _add_input_device,
    _add_pod_network,
)
"""Steps that add devices; an instance type's preference may still set their models and buses."""

SPEC_STEPS: tuple[Callable[[Document], None], ...] = (
    _default_machine_type,
    _default_cpu_request,
    _default_memory,
    _default_cpu_topology,
    *DEVICE_STEPS,
    _default_pull_policies,
)
"""Steps for the template of a VirtualMachine whose instance type was expanded (KubeVirt's
SetDefaultVirtualMachineInstanceSpec)."""

STEPS: tuple[Callable[[Document], None], ...] = (
    *SPEC_STEPS,
    _default_firmware,
    _default_cpu_model,
    _default_disk_buses,
    default_input_devices,
    _default_probes,
)
"""Steps for a new VMI."""
