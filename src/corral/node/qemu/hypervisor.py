"""QEMU as a hypervisor: starts VMs that outlive the manager, and finds them again."""

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
from corral.failures import describe
from corral.node.host.open_disks import opened as disk_opened
from corral.node.host.process import Process, hold, keep_to_ourselves, launch, runs, stood_still
from corral.node.hypervisor import (
    Definition,
    Drive,
    HungError,
    MemoryMisfitError,
    StartError,
    StuckError,
)
from corral.node.qemu import chroot
from corral.node.qemu.accelerator_probe import KVM, Finding, find_accelerator, missing_program
from corral.node.qemu.argv import QEMU, argv
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.devices.interfaces import unplugged
from corral.node.qemu.domain import Accelerator, Domain, Handles
from corral.node.qemu.guest import AGENT, MONITOR, SERIAL, QemuGuest, put_out
from corral.node.qemu.monitor import Monitor, MonitorError
from corral.node.qemu.plugs import BUSY, LOCK
from corral.node.qemu.process_user import account, privileges
from corral.node.qemu.sockets import listen

CONSOLE_LOG = "console.log"
OUTPUT = "qemu.log"
START_SECONDS = 20.0

_PR_SET_THP_DISABLE = 41
_LONGEST_COMPLAINT = 500
_NODE = re.compile(r'"(?:drive|node-name)":"([^"]+)"')

log = structlog.get_logger()


class Qemu:
    """The hypervisor that runs real machines."""

    name = "qemu"
    needs_drives = True

    def __init__(self, directory: Path, *, program: str = QEMU) -> None:
        self._directory = directory
        self._program = program
        self._finding: Finding | None = None
        self._shares_root = ""
        """Why QEMU sees the host's files; empty where it has a root directory of its own."""
        self._probing = asyncio.Lock()
        self._probed = asyncio.Event()

    async def prepare(self) -> None:
        """Set what every VM shall inherit, and probe the accelerator."""
        keep_to_ourselves()
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
        # Both at the end: a probe that fails or is cancelled on the way leaves nothing half known.
        self._finding, self._shares_root = finding, shares_root
        if shares_root:
            log.info("machines share the files of the host", reason=shares_root)

    def _is_missing(self) -> bool:
        return shutil.which(self._program) is None

    async def finding(self) -> Finding:
        """Which accelerator works here, and why; waits for the probe.  Raises StartError.

        A QEMU that was installed since the manager started is probed by who asks first, and again
        by each that asks later, until all of it is installed.
        """
        await wait_at_most(self._probed, START_SECONDS)
        async with self._probing:
            if self._is_to_be_probed():
                await self._probe()
        if self._finding is None:
            raise StartError(
                "StartFailed",
                f"it is not known after {START_SECONDS:g} s which accelerator works here",
                "corral goes on looking; where QEMU hangs, corral status says why",
            )
        return self._finding

    def _is_to_be_probed(self) -> bool:
        """Whether the last probe had not a whole QEMU, and there is one that may be."""
        finding = self._finding
        return finding is not None and not finding.is_whole and not self._is_missing()

    async def boots_at_once(self) -> int:
        """Emulated guests share the processors, and one more fills the gaps; others just wait."""
        processors = len(os.sched_getaffinity(0))
        finding = await self.finding()
        return processors + 1 if finding.accelerator is Accelerator.TCG else 8 * processors

    def facts(self) -> Mapping[str, Any]:
        """For ``corral status``: the accelerator is unknown while it is being probed."""
        finding = self._finding
        if finding is None:
            return {"hypervisor": self.name}
        missing = missing_program(self._program) if self._is_missing() else ""
        return {
            "hypervisor": self.name,
            "accelerator": finding.accelerator.value,
            "reason": "probed with the next machine" if self._is_to_be_probed() else finding.reason,
            "version": finding.version,
            "files": "the host's" if self._shares_root else "own",
            "missing": missing,
        }

    async def find(self, directory: Path) -> QemuGuest | None:
        """Take over the QEMU that runs for a directory.  Raises MonitorError where it is silent.

        HungError, where it has done nothing meanwhile, or can be reached no more.
        """
        if (process := await _running(directory)) is None:
            return None
        before = process.pulse()
        try:
            return await self._greet(directory, process)
        except MonitorError as error:
            if await process.ends():
                return None
            log.warning("qemu does not answer", directory=str(directory), error=str(error))
            process.release()
            if stood_still(before, process.pulse()):
                raise HungError(str(error)) from error
            raise

    async def end(self, directory: Path) -> None:
        """End the QEMU that runs for a directory.  Raises StuckError."""
        try:
            process = await _running(directory)
        except MonitorError as error:
            raise StuckError(str(error)) from error
        if process is not None:
            try:
                await put_out(process)
            finally:
                process.release()

    async def start(self, definition: Definition) -> QemuGuest:
        """Start QEMU with a halted guest.  Raises StartError, and MemoryMisfitError."""
        directory = definition.directory
        if self._is_missing():
            raise StartError(
                "QemuNotFound",
                f"the program {self._program} is not installed",
                "install QEMU, on Debian: apt install qemu-system-x86 qemu-utils",
            )
        accelerator = (await self.finding()).accelerator
        try:
            process, cards = await finished(
                self._spawned(definition, accelerator),
                unwanted=lambda spawned: spawned[0].release(),
            )
        except OSError as error:
            raise StartError("StartFailed", f"QEMU cannot be started: {describe(error)}") from error
        try:
            guest = await self._greet(directory, process, cards)
            if definition.memory is not None:
                await guest.load(definition.memory)
        except MemoryMisfitError as error:
            await process.end()
            raise MemoryMisfitError(complaint(directory) or str(error)) from error
        except MonitorError as error:
            await process.end()
            if volume := busy_volume(definition):
                why = f'the disk of volume "{volume}" {BUSY}'
                raise StartError("StartFailed", why, busy=volume) from error
            raise StartError("StartFailed", complaint(directory) or str(error)) from error
        return guest

    async def _spawned(
        self, definition: Definition, accelerator: Accelerator
    ) -> tuple[Process, Sequence[str]]:
        """A new QEMU, and which of its cards are unplugged.  Raises OSError, StartError."""
        user = account(
            definition.vmi.metadata.uid, device=KVM if accelerator is Accelerator.KVM else None
        )
        with _opened(definition) as (handles, output, lock):
            domain = Domain(
                vmi=definition.vmi,
                handles=handles,
                accelerator=accelerator,
                drives=definition.drives,
                goes_on=definition.memory is not None,
            )
            start = partial(
                launch,
                [*privileges(user), *argv(domain, program=self._program)],
                descriptors=[lock, *handles.all()],
                output=output,
            )
            if not self._shares_root:
                devices = [KVM] if accelerator is Accelerator.KVM else []
                start = partial(chroot.within, definition.directory, self._program, devices, start)
            network = definition.network
            pid = await (own_thread(start) if network is None else network.call(start))
            return Process.of_child(pid, definition.directory), unplugged(domain)

    async def _greet(
        self, directory: Path, process: Process, unplugged: Sequence[str] = ()
    ) -> QemuGuest:
        """Connect to a QEMU; ``unplugged`` are the cards whose cables are pulled out first."""
        monitor: Monitor | None = None
        try:
            monitor = await Monitor.connect(directory / MONITOR, seconds=START_SECONDS)
            state = await monitor.execute("query-status", seconds=START_SECONDS)
            for card in unplugged:
                await monitor.execute("set_link", {"name": card, "up": False})
        except BaseException as error:
            if not isinstance(error, MonitorError):
                process.release()
            if monitor is not None:
                await monitor.close()
            raise
        return QemuGuest(directory, process, monitor, state["status"])


async def _running(directory: Path) -> Process | None:
    """What runs for a directory.  Raises MonitorError where that cannot be told apart."""
    if not runs(directory):
        return None
    process = await Process.adopt(directory)
    if process is None and runs(directory):
        raise MonitorError("something runs that holds the machine's lock, and cannot be found")
    return process


@contextmanager
def _opened(definition: Definition) -> Iterator[tuple[Handles, int, int]]:
    """Everything that QEMU inherits, closed again on our side: handles, output and lock."""
    directory = definition.directory
    with ExitStack() as stack:

        def opened(path: Path, flags: int) -> int:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            return descriptor

        lock = hold(directory)
        if lock is None:
            raise StartError("StartFailed", "QEMU runs for this instance already")
        stack.callback(os.close, lock)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handles = Handles(
            monitor=stack.enter_context(listen(directory / MONITOR)).fileno(),
            serial=stack.enter_context(listen(directory / SERIAL)).fileno(),
            agent=stack.enter_context(listen(directory / AGENT)).fileno(),
            serial_log=opened(directory / CONSOLE_LOG, append),
            files=stack.enter_context(_disks(definition.drives)),
            taps=definition.network.taps if definition.network is not None else {},
        )
        output = opened(directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        yield handles, output, lock


@contextmanager
def _disks(drives: Mapping[str, Drive]) -> Iterator[Mapping[str, Mapping[Path, int]]]:
    """Descriptors of the files behind the drives, closed again on our side.

    Each file is opened for each drive: QEMU's locks do not part two drives that share what was
    opened, and both would write.
    """
    with ExitStack() as stack:
        files: dict[str, dict[Path, int]] = {volume: {} for volume in drives}
        for volume, drive in drives.items():
            for path, flags in drive.files():
                files[volume][path] = descriptor = disk_opened(path, flags)
                stack.callback(os.close, descriptor)
        yield files


def busy_volume(definition: Definition) -> str:
    """Which volume QEMU gave up for, as another one has it; empty where that was not why."""
    said = complaint(definition.directory)
    named = _NODE.search(said)
    if LOCK not in said or named is None:
        return ""
    for disk in definition.vmi.spec.domain.devices.disks:
        if node_of(definition.vmi, disk.name) == named[1].removesuffix("-file"):
            return disk.name
    return ""


def complaint(directory: Path) -> str:
    """What QEMU printed before it gave up, without its own name, cut to be shown."""
    try:
        text = (directory / OUTPUT).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.removeprefix(f"{QEMU}: ") for line in text.splitlines() if line.strip()]
    return "; ".join(lines)[:_LONGEST_COMPLAINT]
