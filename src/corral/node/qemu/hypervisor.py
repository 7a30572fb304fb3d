"""QEMU as a hypervisor: starts machines that outlive the manager, and finds them again."""

import asyncio
import ctypes
import os
import re
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from corral.aio import finished, own_thread, wait_at_most
from corral.api.kinds.vmi.derived import machine_type
from corral.api.kinds.vmi.launcher import launcher
from corral.failures import describe
from corral.node.host.open_disks import opened as disk_opened
from corral.node.host.proc import acquire_lock, runs
from corral.node.host.process import Process, launch, made_no_progress, set_close_on_exec
from corral.node.hypervisor import (
    Definition,
    Drive,
    HungError,
    Launcher,
    MemoryMisfitError,
    StartError,
    StuckError,
)
from corral.node.qemu import chroot, saved_stream
from corral.node.qemu.accelerator_probe import (
    KVM,
    Finding,
    find_accelerator,
    missing_program,
    subject_of,
)
from corral.node.qemu.argv import QEMU, argv
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.devices.interfaces import unplugged
from corral.node.qemu.devices.memory import RAM
from corral.node.qemu.domain import Accelerator, Domain, Handles
from corral.node.qemu.guest import AGENT, MONITOR, SERIAL, QemuGuest, kill
from corral.node.qemu.monitor import Monitor, MonitorError
from corral.node.qemu.plugs import BUSY, LOCK
from corral.node.qemu.process_user import account, privileges
from corral.node.qemu.sockets import listen

CONSOLE_LOG = "console.log"
OUTPUT = "qemu.log"
START_SECONDS = 20.0

_PR_SET_THP_DISABLE = 41
_MAX_OUTPUT = 500
_NODE = re.compile(r'"(?:drive|node-name)":"([^"]+)"')

log = structlog.get_logger()


class Qemu:
    """The hypervisor of real machines."""

    name = "qemu"
    needs_drives = True

    def __init__(self, directory: Path, *, program: str = QEMU) -> None:
        self._directory = directory
        self._program = program
        self._finding: Finding | None = None
        self._shares_root = ""
        """Reason why QEMU shares the host's root directory; empty if it has its own (chroot)."""
        self._probing = asyncio.Lock()
        self._probed = asyncio.Event()

    async def prepare(self) -> None:
        """Set process attributes that every machine inherits, and probe the accelerator."""
        set_close_on_exec()
        # Huge pages would make a small guest's process a fifth larger.
        ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
        # A core file would hold a guest's memory, and could fill the disk.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        await self._probe()
        self._probed.set()

    async def _probe(self) -> None:
        finding = await find_accelerator(self._directory, self._program)
        user = account("", device=None)
        shares_root = await chroot.obstacle(self._directory, self._program, privileges(user))
        # Both at the end, so that a failed or cancelled probe leaves no partial result.
        self._finding, self._shares_root = finding, shares_root
        if shares_root:
            log.info("machines share the files of the host", reason=shares_root)

    def _is_missing(self) -> bool:
        return shutil.which(self._program) is None

    async def finding(self) -> Finding:
        """Return the accelerator that works here, and why; wait for the probe.  Raises StartError.

        A QEMU that was installed after the manager's start is probed by the next caller, and by
        each later one, until it is complete.
        """
        await wait_at_most(self._probed, START_SECONDS)
        async with self._probing:
            if self._needs_probe():
                await self._probe()
        if self._finding is None:
            raise StartError(
                "StartFailed",
                f"the accelerator is not known after {START_SECONDS:g} s of probing",
                "corral keeps probing; if QEMU hangs, corral status says why",
            )
        return self._finding

    def _needs_probe(self) -> bool:
        """Report whether there may be a complete QEMU, or another one than the last probe found."""
        finding, path = self._finding, shutil.which(self._program)
        if finding is None or path is None:
            return False
        if not finding.is_whole:
            return True
        try:
            return bool(finding.subject) and finding.subject != subject_of(path)
        except OSError:  # it was removed just now
            return False

    async def refresh(self) -> bool:
        """Probe again if another QEMU was installed; return whether the facts have changed."""
        async with self._probing:
            if not self._needs_probe():
                return False
            before = self.facts()
            try:
                await self._probe()
            except OSError as error:  # it was removed just now
                log.warning("qemu cannot be probed", error=describe(error))
            return self.facts() != before

    async def launcher(self, machine_type: str) -> Launcher:
        """Return what a machine is started in now.  Raises StartError."""
        finding = await self.finding()
        resolved = finding.machine_types.get(machine_type, machine_type)
        return Launcher(_launcher(finding), resolved)

    async def boots_at_once(self) -> int:
        """Return CPUs + 1 for emulated guests, else 8 per CPU: with KVM they mostly wait."""
        processors = len(os.sched_getaffinity(0))
        finding = await self.finding()
        return processors + 1 if finding.accelerator is Accelerator.TCG else 8 * processors

    def facts(self) -> Mapping[str, Any]:
        """Return facts for ``corral status``, without an accelerator while that is probed."""
        finding = self._finding
        if finding is None:
            return {"hypervisor": self.name}
        missing = missing_program(self._program) if self._is_missing() else ""
        return {
            "hypervisor": self.name,
            "accelerator": finding.accelerator.value,
            "reason": "probed with the next machine" if self._needs_probe() else finding.reason,
            "version": finding.version,
            "launcher": _launcher(finding) if finding.version else "",
            "files": "the host's" if self._shares_root else "own",
            "missing": missing,
        }

    async def find(self, directory: Path) -> QemuGuest | None:
        """Adopt the QEMU that runs for a directory.  Raises MonitorError if it does not answer.

        Raises HungError if it has also used no CPU meanwhile, or its monitor cannot be reached.
        """
        if (process := await _running(directory)) is None:
            return None
        before = process.pulse()
        try:
            return await self._connect(directory, process)
        except MonitorError as error:
            if await process.is_ending():
                return None
            log.warning("qemu does not answer", directory=str(directory), error=str(error))
            process.release()
            if made_no_progress(before, process.pulse()):
                raise HungError(str(error)) from error
            raise

    async def end(self, directory: Path) -> None:
        """Kill the QEMU that runs for a directory.  Raises StuckError."""
        try:
            process = await _running(directory)
        except MonitorError as error:
            raise StuckError(str(error)) from error
        if process is not None:
            try:
                await kill(process)
            finally:
                process.release()

    async def start(self, definition: Definition) -> QemuGuest:
        """Start QEMU with a halted guest.  Raises StartError and MemoryMisfitError."""
        directory = definition.directory
        if self._is_missing():
            raise StartError(
                "QemuNotFound",
                f"the program {self._program} is not installed",
                "install QEMU, on Debian: apt install qemu-system-x86 qemu-utils",
            )
        finding = await self.finding()
        try:
            process, links_down = await finished(
                self._spawn(definition, finding),
                discard=lambda spawned: spawned[0].release(),
            )
        except OSError as error:
            why = f"QEMU cannot be started: {describe(error)}"
            if definition.pages is not None:
                raise MemoryMisfitError(why) from error
            raise StartError("StartFailed", why) from error
        try:
            guest = await self._connect(directory, process, links_down)
            if definition.memory is not None:
                await guest.load(definition.memory)
        except MemoryMisfitError as error:
            await process.end()
            raise MemoryMisfitError(qemu_output(directory) or str(error)) from error
        except MonitorError as error:
            await process.end()
            if volume := busy_volume(definition):
                why = f'the disk of volume "{volume}" {BUSY}'
                raise StartError("StartFailed", why, busy=volume) from error
            output = qemu_output(directory)
            if output and definition.pages is not None:
                raise MemoryMisfitError(output) from error
            raise StartError("StartFailed", output or str(error)) from error
        return guest

    async def split(self, saved: Path, memory: Path, devices: Path) -> None:
        await finished(asyncio.to_thread(saved_stream.split, saved, memory, devices, RAM))

    async def _spawn(
        self, definition: Definition, finding: Finding
    ) -> tuple[Process, Sequence[str]]:
        """Spawn QEMU; return it with its interfaces that have no link.

        Raises OSError, StartError.
        """
        accelerator = finding.accelerator
        user = account(
            definition.vmi.metadata.uid, device=KVM if accelerator is Accelerator.KVM else None
        )
        with _open_handles(definition) as (handles, output, lock):
            domain = Domain(
                vmi=definition.vmi,
                handles=handles,
                accelerator=accelerator,
                drives=definition.drives,
                resumes=definition.memory is not None or definition.receives,
                machine_type=_received_type(definition, finding.machine_types),
                is_strict=_is_strict(),
                pages=self._path_of(definition.pages),
            )
            pages = [definition.pages] if definition.pages is not None else []
            start = partial(
                launch,
                [*privileges(user), *argv(domain, program=self._program)],
                descriptors=[lock, *handles.all(), *pages],
                output=output,
            )
            if not self._shares_root:
                shown = [KVM] if accelerator is Accelerator.KVM else []
                start = partial(
                    chroot.within,
                    definition.directory,
                    self._program,
                    shown,
                    start,
                    has_own_process=definition.pages is not None,
                )
            network = definition.network
            pid = await (own_thread(start) if network is None else network.call(start))
            return Process.of_child(pid, definition.directory), unplugged(domain)

    def _path_of(self, pages: int | None) -> Path | None:
        """Return the path by which QEMU opens a descriptor that it inherits."""
        processes = Path("/proc") if self._shares_root else chroot.OWN_PROC
        return processes / "self/fd" / str(pages) if pages is not None else None

    async def _connect(
        self, directory: Path, process: Process, links_down: Sequence[str] = ()
    ) -> QemuGuest:
        """Connect to a QEMU, and take the links of ``links_down`` down."""
        monitor: Monitor | None = None
        try:
            monitor = await Monitor.connect(directory / MONITOR, seconds=START_SECONDS)
            state = await monitor.execute("query-status", seconds=START_SECONDS)
            for interface in links_down:
                await monitor.execute("set_link", {"name": interface, "up": False})
        except BaseException as error:
            if not isinstance(error, MonitorError):
                process.release()
            if monitor is not None:
                await monitor.close()
            raise
        return QemuGuest(directory, process, monitor, state["status"])


def _is_strict() -> bool:
    """Report whether the host promises no more memory than it has (vm.overcommit_memory)."""
    try:
        return chroot.OVERCOMMIT.read_text().strip() == "2"
    except OSError:
        return False


def _launcher(finding: Finding) -> str:
    return launcher(f"QEMU {finding.version}")


def _received_type(definition: Definition, types: Mapping[str, str]) -> str:
    """Return the machine type of a guest that is received; empty if it is the VMI's here, too.

    An alias such as q35 may be another type in the QEMU that the guest comes from.  Raises
    StartError if this QEMU lacks the type.
    """
    received = definition.machine_type
    if not received:
        return ""
    if types and received not in types:
        why = f"QEMU on this node has no machine type {received} any more"
        raise StartError("StartFailed", why, "restart the machine, so that it gets a newer one")
    own = machine_type(definition.vmi.spec.domain)
    return "" if types.get(own, own) == types.get(received, received) else received


async def _running(directory: Path) -> Process | None:
    """Return the process of a directory.  Raises MonitorError if it runs but is not found."""
    if not runs(directory):
        return None
    process = await Process.adopt(directory)
    if process is None and runs(directory):
        raise MonitorError("a process holds the machine's lock, and cannot be found")
    return process


@contextmanager
def _open_handles(definition: Definition) -> Iterator[tuple[Handles, int, int]]:
    """Open everything that QEMU inherits, and close it on our side: handles, output and lock."""
    directory = definition.directory
    with ExitStack() as stack:

        def opened(path: Path, flags: int) -> int:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            return descriptor

        lock = acquire_lock(directory)
        if lock is None:
            raise StartError("StartFailed", "QEMU already runs for this VMI")
        stack.callback(os.close, lock)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = opened(directory / OUTPUT, append | os.O_TRUNC)  # before the console log: ``Logs``
        handles = Handles(
            monitor=stack.enter_context(listen(directory / MONITOR)).fileno(),
            serial=stack.enter_context(listen(directory / SERIAL)).fileno(),
            agent=stack.enter_context(listen(directory / AGENT)).fileno(),
            serial_log=opened(directory / CONSOLE_LOG, append),
            files=stack.enter_context(_disks(definition.drives)),
            taps=definition.network.taps if definition.network is not None else {},
        )
        yield handles, output, lock


@contextmanager
def _disks(drives: Mapping[str, Drive]) -> Iterator[Mapping[str, Mapping[Path, int]]]:
    """Open the files of the drives, and close them on our side.

    Each file is opened once for each drive: QEMU's locks (OFD) do not conflict between drives that
    share an open file description, so both would write.
    """
    with ExitStack() as stack:
        files: dict[str, dict[Path, int]] = {volume: {} for volume in drives}
        for volume, drive in drives.items():
            for path, flags in drive.files():
                files[volume][path] = descriptor = disk_opened(
                    path, flags, leased=bool(drive.lease)
                )
                stack.callback(os.close, descriptor)
        yield files


def busy_volume(definition: Definition) -> str:
    """Return the volume whose disk another machine has locked; empty if that is no cause."""
    output = qemu_output(definition.directory)
    named = _NODE.search(output)
    if LOCK not in output or named is None:
        return ""
    for disk in definition.vmi.spec.domain.devices.disks:
        if node_of(definition.vmi, disk.name) == named[1].removesuffix("-file"):
            return disk.name
    return ""


def qemu_output(directory: Path) -> str:
    """Return what QEMU printed before it failed, without its program name, cut to be shown."""
    try:
        text = (directory / OUTPUT).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.removeprefix(f"{QEMU}: ") for line in text.splitlines() if line.strip()]
    return "; ".join(lines)[:_MAX_OUTPUT]
