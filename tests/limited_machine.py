"""Machines with limits for tests: real ones, with guests of a boot sector, and no API around."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.real_machine import definition

from corral.aio import Background
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Drive
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.lifecycle import Machine
from corral.node.network.attachment import Networking
from corral.node.qemu.hypervisor import Qemu
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Record

_DISK_BYTES = 1 << 20
_CODE = 0x7C00
BUSY = bytes([0xEB, 0xFE])
"""The code of a guest that takes a whole processor: a jump to itself."""


def greedy(megabytes: int) -> bytes:
    """The code of a guest that writes to so much of its memory, page by page, and stays busy."""
    end = (megabytes << 20).to_bytes(4, "little")
    code = bytes(
        [
            *(0xFA, 0x31, 0xC0, 0x8E, 0xD8),  # cli; xor ax, ax; mov ds, ax
            *(0x0F, 0x01, 0x16, 0, 0),  # lgdt [its descriptor, filled in below]
            *(0x0F, 0x20, 0xC0, 0x0C, 0x01, 0x0F, 0x22, 0xC0),  # cr0 |= 1
            *(0xB8, 0x08, 0x00, 0x8E, 0xD8),  # mov ax, 8; mov ds, ax: all of the memory
            *(0x66, 0xBF, 0x00, 0x00, 0x10, 0x00),  # mov edi, 1 MiB
            *(0x67, 0xC6, 0x07, 0x01),  # again: mov byte [edi], 1
            *(0x66, 0x81, 0xC7, 0x00, 0x10, 0x00, 0x00),  # add edi, 4096
            *(0x66, 0x81, 0xFF, *end),  # cmp edi, end
            *(0x72, 0xEC),  # jb again
            *BUSY,
        ]
    )
    table = bytes(8) + bytes([0xFF, 0xFF, 0, 0, 0, 0x92, 0xCF, 0])
    where = _CODE + len(code)
    descriptor = (len(table) - 1).to_bytes(2, "little") + where.to_bytes(4, "little")
    pointer = (where + len(table)).to_bytes(2, "little")
    return code[:8] + pointer + code[10:] + table + descriptor


def disk_with(directory: Path, code: bytes) -> Path:
    """A disk whose boot sector is this code."""
    disk = directory / "boot.raw"
    disk.write_bytes(code.ljust(510, b"\0") + b"\x55\xaa")
    os.truncate(disk, _DISK_BYTES)
    return disk


class MachineEvents:
    """Keeps the reports of a machine."""

    def __init__(self) -> None:
        self.changes = asyncio.Event()
        self.events: list[tuple[str, str, str]] = []

    def changed(self) -> None:
        self.changes.set()

    def vmi_event(self, event_type: str, reason: str, message: str) -> None:
        self.events.append((event_type, reason, message))

    def pod_event(self, event_type: str, reason: str, message: str) -> None:
        self.events.append((event_type, reason, message))


def _idle(_machine: Machine, _tasks: Background) -> None:
    """Nothing goes on beside it."""


class Limited:
    """A machine, its task, and its recorded events."""

    def __init__(
        self, qemu: Qemu, directory: Path, disk: Path, bounds: Bounds, limits: Limits
    ) -> None:
        self.directory = directory
        self.recorder = MachineEvents()
        self.steps: list[str] = []
        named = {"namespace": "default", "instance": "vm", "pod": "pod", "pod_uid": "pod"}
        record = records.read(directory) or Record(uid=directory.name, bounds=bounds, **named)
        self._definition = definition(directory, disk)
        self.machine = Machine(
            record,
            directory,
            hypervisor=qemu,
            networking=Networking(None),
            boot_slots=BootSlots(qemu.boots_at_once),
            recorder=self.recorder,
            on_step=self.step,
            start_guest_tasks=_idle,
            limits=limits,
        )

    def step(self, step: str) -> None:
        self.steps.append(step)

    @property
    def vmi(self) -> VirtualMachineInstance:
        return self._definition.vmi

    async def prepare(self) -> Mapping[str, Drive]:
        return self._definition.drives

    async def run(self) -> None:
        await self.machine.run(self.vmi, self.prepare)

    async def running(self) -> int:
        """Until its guest runs; its process."""
        async with asyncio.timeout(300):
            while self.machine.facts.state.value != "running":
                self.recorder.changes.clear()
                await self.recorder.changes.wait()
        assert self.machine.guest.pid is not None
        return self.machine.guest.pid


@asynccontextmanager
async def living(limited: Limited) -> AsyncIterator[Limited]:
    """The machine lives until the end of the block, and is ended then."""
    task = asyncio.create_task(limited.run())
    try:
        yield limited
    finally:
        limited.machine.stop(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(300):
                await task
