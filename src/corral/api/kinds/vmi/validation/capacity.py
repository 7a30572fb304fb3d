"""Rules for resources, processors, memory, machine type and firmware."""

import re
from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.resource_names import unknown_resources
from corral.api.kinds.vmi.derived import MOST_PROCESSORS, guest_memory, processors
from corral.api.kinds.vmi.domain import Resources
from corral.api.kinds.vmi.live_update import memory_fault
from corral.api.kinds.vmi.vmi import Spec
from corral.api.quantity import ZERO, amount, parse

ARCHITECTURES = ("amd64",)
MACHINES = ("q35", "pc", "pc-q35-*", "pc-i440fx-*")
LEAST_MEMORY = parse("1M")
SMALLEST_BOOTABLE = parse("16Mi")
LONGEST_SERIAL = 256
NOT_A_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)

_MACHINE = re.compile(r"q35|pc(-(q35|i440fx)-[A-Za-z0-9.]+)?", re.ASCII)
_MODEL = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def check_resources(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that requested resources exist, are not negative, and not above their limits.

    KubeVirt accepts resources that do not exist, and fails later to create the pod.
    """
    resources, here = spec.domain.resources or Resources(), f"{path}.domain.resources"
    for part, values in (("requests", resources.requests), ("limits", resources.limits)):
        for cause in unknown_resources(f"{here}.{part}", values):
            yield Cause(cause.field, f"{cause.field}: {cause.message}")
    for name in ("memory", "cpu"):
        for part, values in (("requests", resources.requests), ("limits", resources.limits)):
            if amount(values.get(name)) < ZERO:
                field = f"{here}.{part}.{name}"
                message = f"{field} '{values[name]}': must be greater than or equal to 0."
                yield Cause(field, message)
        request, limit = resources.requests.get(name), resources.limits.get(name)
        if ZERO < amount(limit) < amount(request):
            field, other = f"{here}.requests.{name}", f"{here}.limits.{name}"
            yield Cause(field, f"{field} '{request}' is greater than {other} '{limit}'")
    memory = resources.requests.get("memory")
    if ZERO < amount(memory) < LEAST_MEMORY:
        field = f"{here}.requests.memory"
        yield Cause(field, f"{field} '{memory}': must be greater than or equal to 1M.")


def check_memory(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the guest's memory is greater than zero, and not above the limit."""
    if spec.domain.memory is None or spec.domain.memory.guest is None:
        return
    field, guest = f"{path}.domain.memory.guest", spec.domain.memory.guest
    if amount(guest) <= ZERO:
        yield Cause(field, f"{field} '{guest}': must be greater than 0.")
    limit = (spec.domain.resources or Resources()).limits.get("memory")
    if ZERO < amount(limit) < amount(guest):
        other = f"{path}.domain.resources.limits.memory"
        message = f"{field} '{guest}' must be equal to or less than the memory limit {other}"
        yield Cause(field, f"{message} '{limit}'")


def check_memory_hotplug(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that memory can be plugged in up to ``maxGuest``."""
    largest = spec.domain.memory.max_guest if spec.domain.memory is not None else None
    if largest is not None and (fault := memory_fault(spec, amount(largest))):
        yield Cause(f"{path}.domain.memory.maxGuest", fault)


def small_memory_warnings(spec: Spec, path: str) -> Iterator[str]:
    """Warn of memory that is too small for nearly all guests.

    KubeVirt accepts as little.  SeaBIOS does not get to the disk with less than 1000 KiB, and no
    maintained kernel boots with less than ``SMALLEST_BOOTABLE``; neither prints an error to the
    serial console.
    """
    memory = guest_memory(spec.domain)
    if ZERO < memory < SMALLEST_BOOTABLE:
        yield (
            f"{path}.domain: {memory} of memory: hardly any guest comes up with less than "
            f"{SMALLEST_BOOTABLE}, and its console stays empty"
        )


def check_huge_pages(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that memory in large pages is a whole number of them."""
    memory = spec.domain.memory
    if memory is None or memory.hugepages is None:
        return
    size, field = memory.hugepages.page_size, f"{path}.domain.hugepages.size"
    requested = (spec.domain.resources or Resources()).requests.get("memory")
    page = amount(size or None)
    if page <= ZERO:
        yield Cause(field, f"{field} '{size}': {NOT_A_QUANTITY}")
    elif requested is not None and amount(requested) >= ZERO:
        here = f"{path}.domain.resources.requests.memory"
        page_size = f"{field} '{size}'"
        if amount(requested) < page:
            message = f"{here} '{requested}' must be equal to or larger than page size {page_size}"
            yield Cause(here, message)
        elif amount(requested).nanos % page.nanos:
            message = f"{here} '{requested}' is not a multiple of the page size {page_size}"
            yield Cause(here, message)


def check_processors(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the fields of ``cpu`` are valid and consistent."""
    cpu, here = spec.domain.cpu, f"{path}.domain.cpu"
    if cpu is None:
        return
    layout = processors(spec.domain)
    count = max(layout.sockets, cpu.max_sockets) * layout.cores * layout.threads
    if count > MOST_PROCESSORS:
        limit = f"more than the {MOST_PROCESSORS} that a machine can have"
        yield Cause(here, f"{here} asks for {count} virtual processors, {limit}.")
    if cpu.model and not _MODEL.fullmatch(cpu.model):
        yield Cause(f"{here}.model", f"{here}.model '{cpu.model}' is not the name of a processor.")
    for index, feature in enumerate(cpu.features):
        if feature.policy not in ("", "force", "require", "optional", "disable", "forbid"):
            message = f"CPU feature {feature.name} uses policy {feature.policy}"
            field = f"{here}.features[{index}].policy"
            yield Cause(field, f"{message} that is not supported.", "FieldValueNotSupported")
    if cpu.max_sockets and cpu.sockets > cpu.max_sockets:
        message = "Number of sockets in CPU topology is greater than the maximum sockets allowed"
        yield Cause(f"{here}.sockets", message)
    if cpu.isolate_emulator_thread and not cpu.dedicated_cpu_placement:
        message = (
            "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"
        )
        yield Cause(f"{here}.isolateEmulatorThread", message)
    if cpu.realtime is not None and not cpu.dedicated_cpu_placement:
        field = f"{here}.dedicatedCpuPlacement"
        message = f"{field} must be set to true when {here}.realtime is used"
        yield Cause(field, message, "FieldValueRequired")


def check_machine_type(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the architecture and the machine type can be emulated."""
    if spec.architecture and spec.architecture not in ARCHITECTURES:
        message = f"unsupported architecture: {spec.architecture}"
        yield Cause(f"{path}.architecture", message)
    machine = spec.domain.machine.type if spec.domain.machine else ""
    if machine and not _MACHINE.fullmatch(machine):
        field, allowed = f"{path}.domain.machine.type", " ".join(MACHINES)
        yield Cause(field, f"{field} is not supported: {machine} (allowed values: [{allowed}])")


def check_firmware(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that UUID and serial number are well-formed, and at most one bootloader is set."""
    firmware, here = spec.domain.firmware, f"{path}.domain.firmware"
    if firmware is None:
        return
    if firmware.uuid and not UUID.fullmatch(firmware.uuid):
        yield Cause(f"{here}.uuid", f"{here}.uuid '{firmware.uuid}' is not a valid UUID.")
    if firmware.serial:
        yield from check_serial(firmware.serial, f"{here}.serial", f"{here}.serial")
    bootloader = firmware.bootloader
    if bootloader is not None and bootloader.efi is not None and bootloader.bios is not None:
        field = f"{here}.bootloader"
        message = "has both EFI and BIOS configured, but they are mutually exclusive."
        yield Cause(field, f"{field} {message}")


def check_chassis(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the SMBIOS chassis strings are short and printable."""
    chassis = spec.domain.chassis
    if chassis is None:
        return
    for name in chassis.__struct_fields__:
        value, field = getattr(chassis, name), f"{path}.domain.chassis.{name}"
        if len(value) > LONGEST_SERIAL:
            limit = f"must be less than or equal to {LONGEST_SERIAL} in length, if specified"
            yield Cause(field, f"{field} {limit}")
        if not value.isprintable():
            yield Cause(field, f"{field} must be made up of printable characters")


def check_serial(serial: str, field: str, named: str) -> Iterator[Cause]:
    """Check a serial number of firmware or of a disk; ``named`` is its name in the message."""
    if len(serial) > LONGEST_SERIAL:
        limit = f"must be less than or equal to {LONGEST_SERIAL} in length, if specified"
        yield Cause(field, f"{named} {limit}")
    if not _SERIAL.fullmatch(serial):
        limit = "must be made up of the following characters [A-Za-z0-9_.+-], if specified"
        yield Cause(field, f"{named} {limit}")


RULES = (
    check_resources,
    check_memory,
    check_memory_hotplug,
    check_huge_pages,
    check_processors,
    check_machine_type,
    check_firmware,
    check_chassis,
)
