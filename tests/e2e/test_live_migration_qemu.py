"""Live migration between two real QEMUs: memory, a disk that is copied, console, cancellation."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.console import serial
from tests.real_machine import definition, hypervisor, new_directory

from corral.aio import Background
from corral.node.hypervisor import Change, GuestError, MigrationOptions, Outgoing
from corral.node.machine.migration.targets import LocalTarget

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
WRITTEN = "head -c 4096000 /dev/urandom > ~/file; sync; md5sum < ~/file"
READ = "dd if=$HOME/file bs=4096 iflag=direct 2>/dev/null | md5sum"
"""From the disk, not from the guest's cache."""
DIGEST = r"[0-9a-f]{32}  -"


@pytest.fixture
async def qemu(tmp_path):
    async with hypervisor(tmp_path) as qemu:
        yield qemu


@pytest.fixture
async def source(qemu, tmp_path, demo_disk):
    """A guest that has booted, whose changes are read."""
    guest = await qemu.start(definition(new_directory(tmp_path), demo_disk))
    async with followed(guest) as changes:
        await guest.resume()
        await changes.until(Change.AGENT_CONNECTED)
        yield guest, changes


class Changes:
    """The changes of a guest."""

    def __init__(self) -> None:
        self.seen: list[Change] = []
        self._more = asyncio.Event()

    async def read(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            self.seen.append(change)
            self._more.set()

    async def until(self, wanted: Change) -> None:
        async with asyncio.timeout(300):
            while wanted not in self.seen:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def followed(guest):
    changes = Changes()
    try:
        async with Background() as tasks:
            tasks.start(changes.read(guest.changes()), name="changes")
            yield changes
    finally:
        await guest.release()


async def receiver(qemu, tmp_path, demo_disk):
    """A machine that waits for the guest, with an empty disk above the same image."""
    planned = definition(new_directory(tmp_path), demo_disk)
    guest = await qemu.start(replace(planned, receives=True))
    await guest.offer_disks(planned.vmi, ["root"])
    return planned.vmi, guest, LocalTarget(guest, ["root"])


async def send(guest, vmi, target, **options):
    outgoing = Outgoing(
        memory=await target.open_remote_memory(),
        disks=target.disks,
        open_disk=target.open_disk,
        options=MigrationOptions(**options),
    )
    await guest.send(vmi, outgoing)


async def test_a_guest_goes_on_with_memory_disk_and_console_where_one_target_has_ended_before(
    qemu, source, tmp_path, demo_disk
):
    guest, changes = source
    async with serial(guest) as console:
        await console.log_in("demo", "demo")
        before = await console.types(WRITTEN, DIGEST)
        await console.types("n=41; echo kept-$n", "kept-41")
    await lose_target(guest, qemu, tmp_path, demo_disk)
    assert (await guest.query_guest_info()) is not None
    vmi, there, target = await receiver(qemu, tmp_path, demo_disk)
    async with asyncio.timeout(300), asyncio.TaskGroup() as group:
        group.create_task(send(guest, vmi, target))
        while target.memory is None:
            await asyncio.sleep(0)
        await there.receive(target.memory, target.sender)
    assert there.received
    assert Change.PAUSED not in changes.seen
    async with followed(there):
        await there.resume()
        async with serial(there) as console:
            await console.types("echo again-$((n + 1))", "again-42")
            after = await console.types(READ, DIGEST)
        assert digest(after) == digest(before)


def digest(said: str) -> str:
    return next(word for word in said.split() if len(word) == 32)


async def lose_target(guest, qemu, tmp_path, demo_disk):
    """Send a guest to a target that ends meanwhile; the guest stays."""
    vmi, there, target = await receiver(qemu, tmp_path, demo_disk)
    sending = asyncio.create_task(send(guest, vmi, target, bandwidth=1 << 20))
    while target.memory is None:
        await asyncio.sleep(0)
    receiving = asyncio.create_task(there.receive(target.memory, target.sender))
    await asyncio.sleep(1)
    await there.destroy()
    with pytest.raises(GuestError):
        await sending
    with pytest.raises(GuestError):
        await receiving
    await there.release()
    await guest.stay()


async def test_a_target_outlives_its_agent_but_not_its_stream(qemu, tmp_path, demo_disk):
    """Its network ends with it: the next agent has to lead the addresses away before."""
    _, there, target = await receiver(qemu, tmp_path, demo_disk)
    line = await target.open_remote_memory()
    inode = os.fstat(line.fileno()).st_ino
    receiving = asyncio.create_task(there.receive(target.memory, target.sender))
    async with asyncio.timeout(60):
        while target.sender.fileno() >= 0:  # lent, and closed here
            await asyncio.sleep(0)
    assert inode in {each.stat().st_ino for each in Path(f"/proc/{there.pid}/fd").iterdir()}
    with line:
        line.shutdown(socket.SHUT_RDWR)
    with pytest.raises(GuestError):
        await receiving
    await there.destroy()
    await there.release()


async def test_a_guest_that_has_stayed_can_be_saved(qemu, source, tmp_path, demo_disk):
    guest, _ = source
    await lose_target(guest, qemu, tmp_path, demo_disk)
    with (tmp_path / "memory").open("xb") as file:
        async with asyncio.timeout(300):
            await guest.save(file.fileno())
    assert (tmp_path / "memory").stat().st_size > 1 << 20
