"""Probes which accelerator works here, by running a guest with a deadline.

The existence of ``/dev/kvm`` proves nothing: in nested and sandboxed hosts it can be opened, and
yet every guest hangs.  Nor is it enough that a guest executes an instruction, or boots: on some
hosts it never gets an interrupt, or breaks at the first one outside of real mode, where KVM
emulates poorly ("KVM internal error", after seconds).  So the firmware boots a floppy, whose boot
sector enters protected mode, waits for three timer interrupts there, and writes to a port that
makes QEMU exit with a status derived from the written number.
"""

import os
import re
import shutil
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from corral import files
from corral.failures import describe
from corral.node.host.command import run
from corral.node.host.proc import boot_id
from corral.node.qemu import kvm_rights
from corral.node.qemu.domain import Accelerator
from corral.node.qemu.process_user import account, privileges

KVM = Path("/dev/kvm")
SECONDS = 2.0
CACHE = "accelerator.json"

_VERSION = "QEMU emulator version "
_MACHINE_TYPE = re.compile(
    r"^(?P<name>(?:q35|pc)\S*) .*?(?:\(alias of (?P<alias_of>\S+)\))?(?: \(deprecated\))?$",
    re.MULTILINE,
)
_PORT = 0x501  # of QEMU's isa-debug-exit device
_SIGN = 0x2A
_EXIT_STATUS = _SIGN << 1 | 1  # the status that the device derives from the written value
_FLOPPY_BYTES = 1440 * 1024
_ORIGIN = 0x7C00  # where the firmware puts a boot sector
_CODE = bytes(
    [
        0xFA,  # cli
        *(0xB0, 0xFE, 0xE6, 0x21),  # mov al, 0xfe; out 0x21, al: of all interrupts the timer's
        *(0xB0, 0xFF, 0xE6, 0xA1),  # mov al, 0xff; out 0xa1, al
        *(0x31, 0xC0, 0x8E, 0xD8),  # xor ax, ax; mov ds, ax
        *(0x66, 0x0F, 0x01, 0x16, 0x70, 0x7C),  # lgdt [0x7c70]: _POINTERS
        *(0x66, 0x0F, 0x01, 0x1E, 0x76, 0x7C),  # lidt [0x7c76]
        *(0x0F, 0x20, 0xC0, 0x0C, 0x01, 0x0F, 0x22, 0xC0),  # mov eax, cr0; or al, 1; mov cr0, eax
        *(0x66, 0xEA, 0x29, 0x7C, 0, 0, 0x08, 0),  # jmp 8:next, which is 32 bits wide
        *(0x66, 0xB8, 0x10, 0),  # mov ax, 16
        *(0x8E, 0xD8, 0x8E, 0xC0, 0x8E, 0xD0),  # mov ds, ax; mov es, ax; mov ss, ax
        *(0xBC, 0, 0x7C, 0, 0),  # mov esp, _ORIGIN
        *(0xB9, 3, 0, 0, 0),  # mov ecx, 3
        0xFB,  # sti
        *(0xF4, 0xE2, 0xFD),  # again: hlt, until the next interrupt, 55 ms at most; loop again
        *(0x66, 0xBA, _PORT & 0xFF, _PORT >> 8),  # mov dx, _PORT
        *(0xB0, _SIGN, 0xEE, 0xF4),  # mov al, _SIGN; out dx, al; hlt
        *(0x50, 0xB0, 0x20, 0xE6, 0x20),  # tick: push eax; mov al, 0x20; out 0x20, al
        *(0x58, 0xCF),  # pop eax; iret
    ]
)
_TICK = _ORIGIN + len(_CODE) - 7
_TABLES, _TIMER = len(_CODE), 8
_GDT = struct.pack("<QQQ", 0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF)  # all memory: code, data
_IDT = struct.pack("<HHHH", _TICK, 8, 0x8E00, 0)  # the timer's gate, and no other
_POINTERS = struct.pack(
    "<HIHI",
    *(len(_GDT) - 1, _ORIGIN + _TABLES),
    *(8 * _TIMER + 7, _ORIGIN + _TABLES + len(_GDT) - 8 * _TIMER),
)
_BOOT_SECTOR = (_CODE + _GDT + _IDT + _POINTERS).ljust(510, b"\0") + b"\x55\xaa"


class Finding(msgspec.Struct, frozen=True):
    """The result of the probe; ``reason`` is a sentence for people."""

    accelerator: Accelerator
    reason: str
    version: str
    subject: str = ""
    """The key of the cache: the host's boot, QEMU, and the permissions of the device."""
    machine_types: dict[str, str] = {}
    """Types of emulated machines by their names and aliases; none if QEMU does not list them."""

    @property
    def is_whole(self) -> bool:
        """True if QEMU ran at all: during its installation it lacks libraries for a while."""
        return self.accelerator is Accelerator.KVM or bool(self.version)


async def find_accelerator(directory: Path, program: str) -> Finding:
    """Probe, or return the cached result for the same QEMU in the same boot."""
    path = shutil.which(program)
    if path is None:
        return Finding(Accelerator.TCG, missing_program(program), "")
    subject = subject_of(path)
    cache = directory / CACHE
    cached = files.read_json(cache, Finding)
    if cached is not None and cached.subject == subject and cached.is_whole:
        return cached
    works, reason = await _kvm_works(path)
    accelerator = Accelerator.KVM if works else Accelerator.TCG
    finding = Finding(
        accelerator, reason, await _version(path), subject, await _machine_types(path)
    )
    if finding.is_whole:
        _write_cache(cache, finding)
    return finding


def missing_program(program: str) -> str:
    """Return the message for a QEMU that is not installed."""
    return f"{program} is not installed: apt-get install qemu-system-x86"


def subject_of(path: str) -> str:
    """Return what a result of the probe depends on.  Raises OSError."""
    stat = Path(path).stat()
    return f"2 {boot_id()} {path} {stat.st_size} {stat.st_mtime_ns} {_kvm_rights()}"


def _write_cache(cache: Path, finding: Finding) -> None:
    with suppress(OSError):  # a full disk: the next manager probes again
        files.replace(cache, msgspec.json.encode(finding))


def _kvm_rights() -> str:
    """Return the permissions of the device, which may change without a boot."""
    try:
        stat = KVM.stat()
    except OSError:
        return "none"
    return f"{stat.st_mode:o}:{stat.st_uid}:{stat.st_gid}"


async def _kvm_works(path: str) -> tuple[bool, str]:
    if obstacle := _obstacle():
        return False, obstacle
    only_root = _only_root()
    try:
        works, reason = await run_probe(path, "kvm", as_root=only_root)
    except OSError as error:
        return False, f"KVM cannot be tried: {describe(error)}"
    return (False, _for_root_alone()) if works and only_root else (works, reason)


def _for_root_alone() -> str:
    return kvm_rights.refused_to_machines(KVM, KVM.stat())


def _obstacle() -> str:
    """Return why KVM need not be probed; empty if it must be."""
    if not KVM.exists():
        return "this host has no /dev/kvm"
    if os.geteuid() != 0 and not os.access(KVM, os.R_OK | os.W_OK):
        return kvm_rights.refused_to_us(KVM, KVM.stat())
    return ""


def _only_root() -> bool:
    """Report whether we may open the device but our machines may not.

    It is probed all the same, as ourselves: advice to change its mode must not be in vain.
    """
    return os.geteuid() == 0 and not kvm_rights.opens_for_machines(KVM.stat())


_MORTAL = ("setpriv", "--pdeathsig=KILL", "--")
"""Makes a command end with us: a probe under a KVM that hangs its guests would stay for ever."""


async def run_probe(
    path: str, accelerator: str, *, as_root: bool = False, seconds: float = SECONDS
) -> tuple[bool, str]:
    """Boot the smallest guest; return whether it reached its end, and a sentence.

    ``as_root``: as our own user, instead of a machine's.
    """
    user = None if as_root else account("", device=KVM if accelerator == "kvm" else None)
    command = [
        *privileges(user),
        *_MORTAL,
        *(path, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "pc", "-m", "8M", "-accel", accelerator),
        *("-device", f"isa-debug-exit,iobase={_PORT:#x},iosize=1"),
        # The name of the descriptor, for a user who cannot access the file's directory.
        *("-drive", "file=/proc/self/fd/0,format=raw,if=floppy,readonly=on"),
    ]
    with tempfile.TemporaryFile() as floppy:
        floppy.write(_BOOT_SECTOR)
        floppy.truncate(_FLOPPY_BYTES)
        os.fchmod(floppy.fileno(), 0o444)
        try:
            status, _, errors = await run(*command, seconds=seconds, stdin=floppy)
        except TimeoutError:
            return False, f"a test guest under {accelerator} did not boot within {seconds:g} s"
    if status == _EXIT_STATUS:
        return True, f"a guest under {accelerator} booted"
    words = errors.decode(errors="replace").strip().replace("\n", "; ")
    return False, words[:300] or f"QEMU with {accelerator} ended with status {status}"


async def _version(path: str) -> str:
    """Return QEMU's version; empty if it cannot be run."""
    return (await _output(path, "--version")).partition("\n")[0].removeprefix(_VERSION)


async def _machine_types(path: str) -> dict[str, str]:
    """Return the types of emulated machines by their names and aliases."""
    found = _MACHINE_TYPE.finditer(await _output(path, "-machine", "help"))
    return {each["name"]: each["alias_of"] or each["name"] for each in found}


async def _output(path: str, *arguments: str) -> str:
    """Return what QEMU prints; empty if it cannot be run."""
    try:
        _, output, _ = await run(path, *arguments, seconds=SECONDS)
    except OSError:  # its interpreter, the dynamic linker, may be missing
        return ""
    return output.decode(errors="replace")
