"""Live updates: sockets and memory that are plugged into a VMI while it runs.  No I/O.

A machine is started with room for them, ``maxSockets`` and ``maxGuest``, which a new VMI of a
VirtualMachine gets from the KubeVirt object if its template does not say.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from corral.api.kinds.vmi.derived import MOST_PROCESSORS, Processors, guest_memory, processors
from corral.api.kinds.vmi.domain import Cpu, Domain, Memory
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.object import Document, Quantity, Struct
from corral.api.quantity import NANO, Amount, Form, amount, parse

VCPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"
MIGRATION_REQUIRED: Final = "MigrationRequired"
"""Conditions of a VMI (KubeVirt's): sockets or memory are being plugged in, which is to be done on
another node."""
BLOCK_BYTES: Final = 2 << 20
"""Memory is plugged in and out in blocks of this size (KubeVirt's HotplugBlockAlignmentBytes)."""
LEAST_BYTES: Final = 1 << 30
"""The least memory of a guest into which memory can be plugged (KubeVirt's): Linux adds it in
sections of 128 MiB, and needs memory for their page tables."""
BOOT_SOCKETS: Final = "corral.dev/boot-sockets"
"""Annotation of a VMI that may get more sockets: those that it starts with.  Devices that have a
queue for each vCPU keep that number wherever the machine moves, and in forks of it."""
_HUGE_BLOCK: Final = "1Gi"


class LiveUpdateConfiguration(Struct, kw_only=True):
    """Room for live updates of VMIs whose template names none: liveUpdateConfiguration.

    max_hotplug_ratio: times the sockets, and the memory, that the VMI starts with.
    max_cpu_sockets: sockets instead of that.
    max_guest: memory instead of that.
    """

    max_hotplug_ratio: int = 4
    max_cpu_sockets: int | None = None
    max_guest: Quantity | None = None


def read_configuration(settings: Any) -> LiveUpdateConfiguration:
    """Return the configuration, with KubeVirt's defaults.

    Raises ValueError, which names the setting, for an invalid one.
    """
    given = settings or {}
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if value is not None}
    try:
        found = msgspec.convert(given, LiveUpdateConfiguration)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    for name, value in (
        ("maxHotplugRatio", found.max_hotplug_ratio),
        ("maxCpuSockets", found.max_cpu_sockets),
    ):
        if value is not None and value < 0:
            raise ValueError(f"{name}: {value} is less than 0")
    try:
        _ = parse(found.max_guest or 0)
    except ValueError as error:
        raise ValueError(f"maxGuest: {error}") from None
    return found


def add_room(vmi: Document, configuration: LiveUpdateConfiguration) -> None:
    """Set ``maxSockets`` and ``maxGuest`` of a new VMI where they are unset, in place.

    As KubeVirt's setupCPUHotplug and setupMemoryHotplug do; no ``maxGuest`` where memory cannot be
    plugged in.
    """
    typed = msgspec.convert(vmi["spec"], Spec)
    domain = vmi["spec"]["domain"]
    layout = processors(typed.domain)
    vmi["metadata"]["annotations"][BOOT_SOCKETS] = str(layout.sockets)
    cpu = domain["cpu"] = domain.get("cpu") or {}
    if not cpu.get("maxSockets"):
        ratio = configuration.max_hotplug_ratio or 1
        sockets = configuration.max_cpu_sockets or layout.sockets * ratio
        possible = MOST_PROCESSORS // (layout.cores * layout.threads)
        cpu["maxSockets"] = max(layout.sockets, min(sockets, possible))
    memory = domain.get("memory") or {}
    if memory.get("guest") is not None and memory.get("maxGuest") is None:
        largest = _default_max_guest(typed.domain, configuration)
        if not memory_fault(typed, amount(largest)):
            memory["maxGuest"] = largest


def _default_max_guest(domain: Domain, configuration: LiveUpdateConfiguration) -> Quantity:
    if configuration.max_guest is not None:
        return configuration.max_guest
    guest = guest_memory(domain)
    ratio = configuration.max_hotplug_ratio or 1
    return str(Amount(guest.nanos * ratio, guest.form))


def memory_fault(spec: Spec, max_guest: Amount) -> str:
    """Return why memory cannot be plugged in up to ``max_guest``; empty if it can.

    The rules and their words are KubeVirt's (ValidateLiveUpdateMemory).
    """
    memory = spec.domain.memory
    if fault := _incompatibility(spec.domain):
        return fault
    if memory is None or memory.guest is None:
        return "Guest memory must be configured when memory hotplug is enabled"
    guest = amount(memory.guest)
    if guest > max_guest:
        return "Guest memory is greater than the configured maxGuest memory"
    pages = memory.hugepages.page_size if memory.hugepages is not None else ""
    block = LEAST_BYTES if pages == _HUGE_BLOCK else BLOCK_BYTES
    shown = Amount(block * NANO, Form.BINARY)
    for name, size in (("Guest memory", guest), ("MaxGuest", max_guest)):
        if size.rounded_up() % block:
            return f"{name} must be {shown} aligned"
    if guest.rounded_up() < LEAST_BYTES:
        return "Memory hotplug is only available for VMs with at least 1Gi of guest memory"
    return ""


def _incompatibility(domain: Domain) -> str:
    """Return the feature of a VMI that rules out memory hotplug; empty if there is none."""
    cpu = domain.cpu
    if cpu is not None and cpu.realtime is not None:
        return "Memory hotplug is not compatible with realtime VMs"
    if cpu is not None and cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None:
        return "Memory hotplug is not compatible with guest mapping passthrough"
    if domain.launch_security is not None:
        return "Memory hotplug is not compatible with encrypted VMs"
    return ""


def max_sockets(domain: Domain) -> int:
    """Return the sockets that a machine has room for."""
    most = domain.cpu.max_sockets if domain.cpu is not None else 0
    return max(most, processors(domain).sockets)


def max_memory_bytes(domain: Domain) -> int:
    """Return the memory that a machine has room for, in bytes; 0 if none can be plugged in."""
    largest = domain.memory.max_guest if domain.memory is not None else None
    return amount(largest).rounded_up() if largest is not None else 0


def present_processors(vmi: VirtualMachineInstance) -> Processors:
    """Return the topology that the guest has at present; before it runs, that of its spec."""
    present = vmi.status.current_cpu_topology
    if present is None or not present.sockets:
        return processors(vmi.spec.domain)
    return Processors(present.sockets, present.cores or 1, present.threads or 1)


def has_room(vmi: VirtualMachineInstance) -> bool:
    """Report whether a machine is started with room for more than it has."""
    most = vmi.spec.domain.cpu.max_sockets if vmi.spec.domain.cpu is not None else 0
    return most > 1 or max_memory_bytes(vmi.spec.domain) > boot_memory(vmi).rounded_up()


def boot_sockets(vmi: VirtualMachineInstance) -> int | None:
    """Return the sockets that its annotation says a VMI starts with; None if it says nothing."""
    text = vmi.metadata.annotations.get(BOOT_SOCKETS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else None


def queues(vmi: VirtualMachineInstance) -> int | None:
    """Return the queues of devices that have one for each vCPU; None for QEMU's choice."""
    sockets = boot_sockets(vmi)
    if sockets is None:
        return None
    layout = processors(vmi.spec.domain)
    count = sockets * layout.cores * layout.threads
    return count if 0 < count <= MOST_PROCESSORS else None


def boot_memory(vmi: VirtualMachineInstance) -> Amount:
    """Return the memory that a running guest has booted with; that of the spec if it is unknown."""
    present = vmi.status.memory
    if present is None or present.guest_at_boot is None:
        return guest_memory(vmi.spec.domain)
    return amount(present.guest_at_boot)


def current_memory(vmi: VirtualMachineInstance) -> Amount:
    """Return the memory that a running guest has at present; that of the spec if it is unknown."""
    present = vmi.status.memory
    if present is None or present.guest_current is None:
        return guest_memory(vmi.spec.domain)
    return amount(present.guest_current)


def requested_guest(vmi: VirtualMachineInstance) -> Amount:
    """Return the memory that the node is to give a running guest; that of the spec if unknown."""
    present = vmi.status.memory
    if present is None or present.guest_requested is None:
        return guest_memory(vmi.spec.domain)
    return amount(present.guest_requested)


def without_size(spec: Spec) -> Spec:
    """Return a spec without its sockets and memory."""
    cpu = replace(spec.domain.cpu or Cpu(), sockets=0)
    memory = replace(spec.domain.memory or Memory(), guest=None)
    return replace(spec, domain=replace(spec.domain, cpu=cpu, memory=memory))


def is_live_change(old: Spec, new: Spec) -> bool:
    """Report whether two specs differ only in what may change while a VMI runs."""
    return _unchangeable(old) == _unchangeable(new)


def _unchangeable(spec: Spec) -> Spec:
    return replace(without_size(spec), node_selector={}, affinity=None, tolerations=[])


def sockets_differ(vmi: VirtualMachineInstance) -> bool:
    """Report whether sockets are to be plugged in."""
    return processors(vmi.spec.domain).sockets > present_processors(vmi).sockets


def is_growing(vmi: VirtualMachineInstance) -> bool:
    """Report whether vCPUs are being plugged in, and nothing has been found to hinder that."""
    return any(
        (each.type, each.status, each.reason) == (VCPU_CHANGE, "True", "")
        for each in vmi.status.conditions
    )


def has_condition(vmi: VirtualMachineInstance, name: str) -> bool:
    """Report whether a condition of a VMI is True."""
    return any(each.type == name and each.status == "True" for each in vmi.status.conditions)
