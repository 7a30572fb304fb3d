"""The QEMU command line of a VMI.  Pure: no file is touched.

The board is a bare q35: devices that the VMI does not request are left out, which saves memory,
start-up time and attack surface.  QEMU stays when the guest powers off or panics (``-action``), so
that the manager learns the outcome even if it was not running at that moment.
"""

from corral.api.kinds.vmi.derived import machine_type
from corral.api.kinds.vmi.live_update import (
    boot_memory,
    max_memory_bytes,
    max_sockets,
    present_processors,
)
from corral.api.kinds.vmi.saved_memory import firmware_uuid
from corral.node.qemu.devices import DEVICES
from corral.node.qemu.devices.disks import needs_usb as disks_need_usb
from corral.node.qemu.devices.inputs import needs_usb as inputs_need_usb
from corral.node.qemu.domain import Accelerator, Domain, add_fd, quoted
from corral.node.qemu.migration_file import IN_FILE, INCOMING

QEMU = "qemu-system-x86_64"

# The cache of translated code: the default of 1 GiB costs 30 to 60 MB more for each machine, and
# below 32 MiB a guest boots slower.  Large guests run large programs.
_TRANSLATION_MIB = 32
_TRANSLATION_SHARE = 16
_MIB = 1024 * 1024

SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def argv(domain: Domain, *, program: str = QEMU) -> list[str]:
    """Return the command line; the guest stays halted (``-S``) until the monitor resumes it."""
    vmi = domain.vmi
    arguments = [
        program,
        "-name",
        # For people who read the list of processes.
        f"guest={vmi.metadata.namespace}_{vmi.metadata.name}_{vmi.metadata.uid}",
        "-S",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-sandbox",
        SANDBOX,
        "-machine",
        _machine(domain),
        "-accel",
        _accelerator(domain),
        "-cpu",
        _cpu(domain),
        "-smp",
        _topology(domain),
        "-m",
        _memory(domain),
        "-rtc",
        "base=utc",
        "-action",
        f"shutdown=pause,panic=pause,reboot={_on_reboot(domain)}",
    ]
    arguments += _smbios(domain)
    arguments += add_fd(domain.handles.serial_log, opaque="serial-log")
    arguments += [
        "-chardev",
        f"socket,id=monitor0,fd={domain.handles.monitor},server=on,wait=off",
        "-mon",
        "chardev=monitor0,mode=control",
    ]
    if _needs_usb(domain):
        arguments += ["-device", "qemu-xhci,id=usb0"]
    for build in DEVICES:
        arguments += build(domain)
    if domain.resumes:
        arguments += INCOMING
    return arguments


def _memory(domain: Domain) -> str:
    boot, most = _boot_bytes(domain), max_memory_bytes(domain.vmi.spec.domain)
    memory = f"{-(-boot // 1024)}K"
    return f"{memory},maxmem={most // 1024}K" if most > boot else memory


def _boot_bytes(domain: Domain) -> int:
    """Return the memory that the guest boots with: for a machine that moves, as it has booted."""
    return boot_memory(domain.vmi).rounded_up()


def _topology(domain: Domain) -> str:
    layout = present_processors(domain.vmi)
    _, cores, threads = layout
    sockets = max(layout.sockets, max_sockets(domain.vmi.spec.domain))
    present = f"{layout.total},sockets={sockets},cores={cores},threads={threads}"
    most = sockets * cores * threads
    return f"{present},maxcpus={most}" if most > layout.total else present


def _machine(domain: Domain) -> str:
    features = domain.vmi.spec.domain.features
    board = quoted(domain.machine_type or machine_type(domain.vmi.spec.domain))
    acpi = features is None or features.acpi is None or features.acpi.enabled is not False
    slim = "sata=off,smbus=off,usb=off,vmport=off,hpet=off,dump-guest-core=off"
    pages = f",{IN_FILE}" if domain.pages is not None else ""
    return f"{board},{slim},acpi={'on' if acpi else 'off'}{pages}"


def _accelerator(domain: Domain) -> str:
    if domain.accelerator is Accelerator.KVM:
        return "kvm"
    share = _boot_bytes(domain) // _MIB // _TRANSLATION_SHARE
    size = max(_TRANSLATION_MIB, share)
    if max_sockets(domain.vmi.spec.domain) > 1:  # so that a boot leaves regions for more vCPUs
        size += _TRANSLATION_MIB // 2
    return f"tcg,tb-size={size}"


def _cpu(domain: Domain) -> str:
    cpu = domain.vmi.spec.domain.cpu
    if domain.accelerator is Accelerator.TCG:
        # Without RDRAND a guest waits many seconds for random numbers.
        return "qemu64,+rdrand"
    if cpu is None or cpu.model in {"", "host-model", "host-passthrough"}:
        return "host"
    return quoted(cpu.model)


def _on_reboot(domain: Domain) -> str:
    return "shutdown" if domain.vmi.spec.domain.reboot_policy == "Terminate" else "reset"


def _smbios(domain: Domain) -> list[str]:
    spec = domain.vmi.spec.domain
    firmware, chassis = spec.firmware, spec.chassis
    uuid = firmware_uuid(domain.vmi)
    system = {"uuid": uuid, "serial": firmware.serial if firmware is not None else ""}
    arguments = ["-uuid", uuid, *_smbios_table(1, {"manufacturer": "corral", **system})]
    if chassis is not None:
        names = ("manufacturer", "version", "serial", "asset", "sku")
        arguments += _smbios_table(3, {name: getattr(chassis, name) for name in names})
    return arguments


def _smbios_table(number: int, fields: dict[str, str]) -> list[str]:
    given = [f"{name}={quoted(value)}" for name, value in fields.items() if value]
    return ["-smbios", ",".join((f"type={number}", *given))] if given else []


def _needs_usb(domain: Domain) -> bool:
    return disks_need_usb(domain) or inputs_need_usb(domain)
