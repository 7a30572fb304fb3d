"""Real machines for tests, without an API around them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from tests import accelerator

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change, Definition, Drive, Layer
from corral.node.images import qcow
from corral.node.qemu.accelerator_probe import CACHE
from corral.node.qemu.hypervisor import Qemu

MEMORY = "64M"


def definition(directory: Path, disk: Path, **spec) -> Definition:
    """A machine that boots an overlay on a raw disk; its directory is new, or was used before."""
    uid = directory.name
    directory.mkdir(exist_ok=True, mode=0o700)
    overlay = directory / "root.qcow2"
    if not overlay.exists():
        size = disk.stat().st_size
        qcow.create(overlay, size, backing=disk, backing_format="raw")
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": uid},
        "spec": {
            "domain": {
                "memory": {"guest": MEMORY},
                "devices": {
                    "rng": {},
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            **spec,
        },
    }
    drive = Drive(volume="root", path=overlay, layers=(Layer(disk, "raw"),))
    return Definition(
        vmi=msgspec.convert(document, VirtualMachineInstance),
        directory=directory,
        drives={"root": drive},
    )


def new_directory(parent: Path) -> Path:
    return parent / str(uuid.uuid4())


@asynccontextmanager
async def hypervisor(directory: Path) -> AsyncIterator[Qemu]:
    """QEMU, with nothing of it left afterwards."""
    (directory / CACHE).write_bytes(await asyncio.to_thread(accelerator.finding))
    qemu = Qemu(directory)
    await qemu.prepare()
    try:
        yield qemu
    finally:
        for machine in directory.iterdir():
            if machine.is_dir():
                await qemu.end(machine)


async def seen(changes: AsyncIterator[Change], wanted: Change, seconds: float = 300) -> None:
    """Wait for a change of a guest."""
    async with asyncio.timeout(seconds):
        async for change in changes:
            if change is wanted:
                return
    raise AssertionError(f"{wanted} was never seen")
