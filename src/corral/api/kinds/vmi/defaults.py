"""What a machine gets when its maker did not say: KubeVirt's mutating webhook, field by field.

Everything is settled when the machine is made, because its spec cannot change afterwards.  Steps
build on each other: disks are added before they get a bus, processors are counted from requests
that were copied from limits.
"""

from collections.abc import Callable
from typing import Any

from corral.api.images import pull_policy
from corral.api.kind import at
from corral.api.kinds.vmi.derived import memory_asked, sockets
from corral.api.kinds.vmi.vmi import FINALIZER
from corral.api.object import Document
from corral.api.uid import random_uuid

ARCHITECTURE = "amd64"
BUS = "sata"
CPU_MODEL = "host-model"
MACHINE = "q35"
RUNTIME_USER = 107
"""The user id that KubeVirt's launcher runs as; shown in the status for its clients."""
TOPOLOGY = ("sockets", "cores", "threads")
PCI_TOPOLOGY = "kubevirt.io/pci-topology-version"

_REVISION = "virtualMachineRevisionName"
_DEVICES = ("disk", "cdrom", "lun")
_PROBES = ("readinessProbe", "livenessProbe")


def default_new_instance(document: Document) -> None:
    """Complete a VirtualMachineInstance that is being made, in place."""
    spec = document["spec"]
    for complete in STEPS:
        complete(spec)
    _metadata(document["metadata"])
    kept = _made_from(document)
    document["status"] = _status(spec["domain"], document["metadata"].get("creationTimestamp"))
    document["status"] |= kept


def _made_from(document: Document) -> dict[str, Any]:
    """The revision that it is made from: of a new machine's status, what only its maker knows."""
    name = at(document, "status", _REVISION)
    return {_REVISION: name} if name else {}


def _status(domain: dict[str, Any], now: str | None) -> dict[str, Any]:
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


def _board(spec: Document) -> None:
    spec.setdefault("architecture", ARCHITECTURE)
    domain = spec["domain"]
    machine = domain.setdefault("machine", {})
    if not machine.get("type"):
        machine["type"] = MACHINE


def _identity(spec: Document) -> None:
    domain = spec["domain"]
    firmware = domain.setdefault("firmware", {})
    if not firmware.get("uuid"):
        firmware["uuid"] = random_uuid()
    domain.setdefault("features", {}).setdefault("acpi", {}).setdefault("enabled", True)


def _requests(spec: Document) -> None:
    """Processors that are limited are requested; memory is left to the launcher's pod."""
    resources = spec["domain"].get("resources") or {}
    if limit := (resources.get("limits") or {}).get("cpu"):
        resources.setdefault("requests", {}).setdefault("cpu", limit)


def _memory(spec: Document) -> None:
    """The guest sees what is requested, else what it is limited to, else one huge page."""
    domain = spec["domain"]
    memory = domain.setdefault("memory", {})
    if "guest" in memory:
        return
    resources = domain.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    guest = memory_asked(requests, limits, (memory.get("hugepages") or {}).get("pageSize"))
    if guest is not None:
        memory["guest"] = guest


def _processors(spec: Document) -> None:
    """One, or as many sockets as the limit or request asks for, rounded up."""
    domain = spec["domain"]
    cpu = domain.setdefault("cpu", {})
    if not any(cpu.get(part) for part in TOPOLOGY):
        resources = domain.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        cpu.update(sockets=sockets(limits, requests), cores=1, threads=1)


def _model(spec: Document) -> None:
    cpu = spec["domain"]["cpu"]
    if not cpu.get("model"):
        cpu["model"] = CPU_MODEL


def _disks(spec: Document) -> None:
    """Every volume has a disk."""
    devices = spec["domain"]["devices"]
    disks = devices.setdefault("disks", [])
    shown = {one.get("name") for one in (*disks, *(devices.get("filesystems") or ()))}
    disks += [
        {"name": volume["name"]}
        for volume in spec.get("volumes") or ()
        if volume["name"] not in shown and "memoryDump" not in volume
    ]
    if not disks:
        del devices["disks"]


def _buses(spec: Document) -> None:
    """Every disk has a device, every device a bus."""
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


def _inputs(spec: Document) -> None:
    """A tablet where one is asked for without a word about it.

    KubeVirt attaches it to machines of VirtualMachines alone, whose preference may like another.
    """
    devices = spec["domain"]["devices"]
    if devices.get("autoattachInputDevice") and not devices.get("inputs"):
        devices["inputs"] = [{"name": "default-0"}]


def complete_inputs(spec: Document) -> None:
    """Every input device has a bus and a type."""
    for wanted in spec["domain"]["devices"].get("inputs") or ():
        for field, default in (("bus", "usb"), ("type", "tablet")):
            wanted[field] = wanted.get(field) or default


def _networks(spec: Document) -> None:
    """A machine that says nothing of networks gets the pod network."""
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False:
        return
    if not spec.get("networks") and not devices.get("interfaces"):
        spec["networks"] = [{"name": "default", "pod": {}}]
        devices["interfaces"] = [{"name": "default", "bridge": {}}]


def _images(spec: Document) -> None:
    images = [volume.get("containerDisk") for volume in spec.get("volumes") or ()]
    firmware = spec["domain"].get("firmware") or {}
    images.append((firmware.get("kernelBoot") or {}).get("container"))
    for source in images:
        if source and not source.get("imagePullPolicy"):
            source["imagePullPolicy"] = pull_policy(source.get("image") or "")


def _probes(spec: Document) -> None:
    for name in _PROBES:
        if probe := spec.get(name):
            for field, seconds in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                probe[field] = probe.get(field) or seconds


def _metadata(metadata: dict[str, Any]) -> None:
    finalizers = metadata.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    metadata.setdefault("annotations", {})[PCI_TOPOLOGY] = "v3"


FURNISHING: tuple[Callable[[Document], None], ...] = (_disks, _inputs, _networks)
"""Devices that nobody named; a preference may still like them to be of another sort."""

SPEC_STEPS: tuple[Callable[[Document], None], ...] = (
    _board,
    _requests,
    _memory,
    _processors,
    *FURNISHING,
    _images,
)
"""What a VirtualMachine says itself once its references are replaced by what they say (KubeVirt's
SetDefaultVirtualMachineInstanceSpec)."""

STEPS: tuple[Callable[[Document], None], ...] = (
    *SPEC_STEPS,
    _identity,
    _model,
    _buses,
    complete_inputs,
    _probes,
)
"""What a machine gets besides when it is made."""
