"""A real guest's memory: saved to a file, and gone on from by another QEMU."""

import asyncio
import os
from dataclasses import replace

import pytest
from tests.console import Console, serial
from tests.real_machine import definition, hypervisor, new_directory, seen

from corral.node.hypervisor import Change, GuestError, Memory, MemoryMisfitError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

COUNT = "i=0; while :; do echo n=$i; i=$((i+1)); sleep 0.1; done"


async def counted(screen: Console) -> int:
    """The number that is counted; the next ones follow."""
    first = int((await screen.says(r"n=(\d+)\r"))[1])
    await screen.says(rf"n={first + 5}\r")
    return first


@pytest.fixture
async def qemu(tmp_path):
    async with hypervisor(tmp_path) as qemu:
        yield qemu


@pytest.fixture
async def counting(qemu, tmp_path, demo_disk):
    """A guest in whose console a shell counts; and what it was started by."""
    wanted = definition(new_directory(tmp_path), demo_disk)
    guest = await qemu.start(wanted)
    await guest.resume()
    await seen(guest.changes(), Change.AGENT_CONNECTED)
    async with serial(guest) as screen:
        await screen.log_in("demo", "demo")
        await screen.types(COUNT, r"n=10\r")
        yield wanted, guest, screen
    await guest.release()


async def save(guest, file) -> tuple[str, ...]:
    """Save a guest as a machine does, and end it; answers its shape."""
    shape = await guest.shape()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    async def follow():
        async for _ in guest.changes():
            pass

    following = asyncio.create_task(follow())
    try:
        await guest.save(descriptor)
        await guest.destroy()
        await following
    finally:
        os.close(descriptor)
        following.cancel()
    return shape


async def test_a_guest_is_saved_and_restored(qemu, tmp_path, counting):
    wanted, guest, screen = counting
    await a_guest_that_cannot_be_saved_runs_on(guest, screen)
    shape = await save(guest, tmp_path / "memory")
    assert (tmp_path / "memory").stat().st_size < 64 << 20
    await truncated_memory_is_rejected_with_qemus_message(qemu, wanted, tmp_path / "memory", shape)
    goes_on = replace(wanted, memory=Memory(file=tmp_path / "memory", shape=shape))
    restored = await qemu.start(goes_on)
    assert not restored.halted
    async with serial(restored) as screen:
        changes = restored.changes()
        await restored.resume()
        await seen(changes, Change.AGENT_CONNECTED)
        assert 0 < await counted(screen) < 1000
        guest_info = await restored.query_guest_info()
        assert guest_info.interfaces[0].addresses[0] == "10.0.2.15"
    await restored.destroy()
    await restored.release()


async def a_guest_that_cannot_be_saved_runs_on(guest, screen):
    async def follow():
        async for change in guest.changes():
            assert change is not Change.PAUSED

    following = asyncio.create_task(follow())
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(GuestError, match="cannot be written"):
        await guest.save(full)
    os.close(full)
    await guest.resume()
    screen.said = ""
    await counted(screen)
    assert not following.done()
    following.cancel()
    await asyncio.wait([following])


async def truncated_memory_is_rejected_with_qemus_message(qemu, wanted, memory, shape):
    truncated = memory.with_name("truncated")
    truncated.write_bytes(memory.read_bytes()[: 1 << 20])
    with pytest.raises(MemoryMisfitError):
        await qemu.start(replace(wanted, memory=Memory(file=truncated, shape=shape)))
    assert await qemu.find(wanted.directory) is None
