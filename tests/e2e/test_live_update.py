"""vCPUs and memory that are plugged into real guests, kept in a migration and in a saved memory."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from tests.cluster import PATIENCE
from tests.console import serial
from tests.e2e.test_live_migration_qemu import followed, send
from tests.real_machine import definition, hypervisor, new_directory

from corral.api.kinds.vmi.live_update import BOOT_SOCKETS
from corral.api.kinds.vmi.status import CpuTopology, MemoryStatus
from corral.node.hypervisor import Change, GuestError, GuestSize
from corral.node.machine.migration.targets import LocalTarget

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

GIB = 1 << 30
LARGE = "echo large-$(awk '/MemTotal/ {print ($2 > 1400000)}' /proc/meminfo)"
NEW_PROGRAMS = (
    "for n in 1 2 3 4 5 6 7 8 9 10; do cp /bin/busybox /tmp/busybox; "
    "/tmp/busybox ls -lR /etc >/dev/null; rm /tmp/busybox; done; echo new-$n"
)
ROOM = {
    "cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 3},
    "memory": {"guest": "1Gi", "maxGuest": "2Gi"},
}


@pytest.fixture
async def qemu(tmp_path):
    async with hypervisor(tmp_path) as qemu:
        yield qemu


def roomy(tmp_path, demo_disk, **status):
    """A machine with room for two more sockets, and as much memory again."""
    planned = definition(new_directory(tmp_path), demo_disk)
    document = msgspec.to_builtins(planned.vmi)
    document["spec"]["domain"] |= ROOM
    document["metadata"]["annotations"] = {BOOT_SOCKETS: "1"}
    vmi = msgspec.convert(document, type(planned.vmi))
    for name, value in status.items():
        setattr(vmi.status, name, value)
    return replace(planned, vmi=vmi)


@asynccontextmanager
async def booted(qemu, planned):
    guest = await qemu.start(planned)
    async with followed(guest) as changes:
        await guest.resume()
        await changes.until(Change.AGENT_CONNECTED)
        yield guest


class Changes:
    """Counts what a guest has seen, taken or released."""

    def __init__(self, guest) -> None:
        self.count = 0
        self._more = asyncio.Event()
        guest.resizing.on_changed(self._on_changed)

    def _on_changed(self) -> None:
        self.count += 1
        self._more.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.count < count:
                self._more.clear()
                await self._more.wait()


async def plug(guest, console, count):
    """Plug vCPUs in, as soon as QEMU's cache of translated code has room for them.

    Programs that are new to QEMU fill what is left of it, after which QEMU flushes it.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await guest.resizing.plug_processors(count)
            except GuestError:
                await console.types(NEW_PROGRAMS, "new-10")
            else:
                return


async def test_a_guest_gets_vcpus_and_memory_and_keeps_them_when_it_moves(
    qemu, tmp_path, demo_disk
):
    async with booted(qemu, roomy(tmp_path, demo_disk)) as guest:
        changes = Changes(guest)
        assert await guest.resizing.query() == GuestSize(1, GIB)
        async with serial(guest) as console:
            await console.log_in("demo", "demo")
            await console.types("echo has-$(nproc)", "has-1")
            await plug(guest, console, 3)
            await changes.until(2)  # it has seen both
            await guest.agent.bring_online()
            await console.types("echo has-$(nproc)", "has-3")
            await guest.resizing.request_memory(GIB // 2)
            while (await guest.resizing.query()).plugged_bytes < GIB // 2:
                await changes.until(changes.count + 1)
            await guest.agent.bring_online()
            await console.types(LARGE, "large-1")
            await console.types("n=41; echo kept-$n", "kept-41")
        grown = {
            "current_cpu_topology": CpuTopology(sockets=3, cores=1, threads=1),
            "memory": MemoryStatus(guest_at_boot="1Gi", guest_current="1536Mi"),
        }
        planned = roomy(tmp_path, demo_disk, **grown)
        there = await qemu.start(replace(planned, receives=True))
        await there.offer_disks(planned.vmi, ["root"])
        target = LocalTarget(there, ["root"])
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(send(guest, planned.vmi, target))
            while target.memory is None:
                await asyncio.sleep(0)
            await there.receive(target.memory)
        async with followed(there):
            await there.resume()
            assert await there.resizing.query() == GuestSize(3, GIB, GIB // 2, GIB // 2)
            async with serial(there) as console:
                await console.types("echo again-$((n + 1))", "again-42")
                await console.types("echo has-$(nproc)", "has-3")
