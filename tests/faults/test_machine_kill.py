"""The manager is killed between any two steps of starting a real machine."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.real_machine import definition, hypervisor, new_directory, seen

from corral.node.host import process
from corral.node.hypervisor import Change, GuestError

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]

MANAGER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.real_machine import definition
from corral.node.host import process
from corral.node.qemu.hypervisor import Qemu

kill_at, directory, disk = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if kill_at == "before the record":
    process.write_record = die

async def main():
    qemu = Qemu(directory.parent)
    await qemu.prepare()
    guest = await qemu.start(definition(directory, disk))
    if kill_at == "before the first instruction":
        die()
    await guest.resume()
    die()

asyncio.run(main())
"""


async def manager(kill_at: str, directory: Path, disk: Path) -> None:
    """A manager that starts a machine and is killed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        MANAGER,
        kill_at,
        str(directory),
        str(disk),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )
    assert await child.wait() == -signal.SIGKILL


@pytest.fixture
def disk(tmp_path):
    """Nothing is booted here: an empty disk does."""
    path = tmp_path / "empty.raw"
    path.touch()
    os.truncate(path, 1 << 20)
    return path


@pytest.mark.parametrize(
    ("kill_at", "halted"),
    [
        ("before the record", True),
        ("before the first instruction", True),
        ("after the first instruction", False),
    ],
)
async def test_a_restarted_manager_adopts_the_machine_once(tmp_path, disk, kill_at, halted):
    async with hypervisor(tmp_path) as qemu:
        directory = new_directory(tmp_path)
        await manager(kill_at, directory, disk)
        assert process.runs(directory)
        guest = await qemu.find(directory)
        assert guest is not None
        assert guest.halted is halted
        assert process.read_record(directory).pid == guest.pid
        if halted:
            await guest.resume()
        changes = guest.changes()
        await seen(changes, Change.RESUMED)
        os.kill(guest.pid, signal.SIGKILL)
        await seen(changes, Change.GONE)
        await guest.release()
        assert not process.runs(directory)


async def test_an_unresponsive_qemu_is_left_alone_until_it_is_stopped(tmp_path, disk, monkeypatch):
    async with hypervisor(tmp_path) as qemu:
        guest = await qemu.start(definition(new_directory(tmp_path), disk))
        [directory] = [entry for entry in tmp_path.iterdir() if entry.is_dir()]
        await guest.release()
        os.kill(guest.pid, signal.SIGSTOP)
        with monkeypatch.context() as hurried:
            hurried.setattr("corral.node.qemu.hypervisor.START_SECONDS", 0.5)
            with pytest.raises(GuestError):
                await qemu.find(directory)
        os.kill(guest.pid, signal.SIGCONT)
        found = await qemu.find(directory)
        assert found is not None
        await found.release()
        os.kill(guest.pid, signal.SIGSTOP)
        await qemu.end(directory)
        assert not process.runs(directory)


async def test_a_machine_with_garbage_in_its_directory_starts(tmp_path, disk):
    async with hypervisor(tmp_path) as qemu:
        wanted = definition(new_directory(tmp_path), disk)
        for name in ("monitor.sock", "serial.sock", "agent.sock", process.RECORD, process.LOCK):
            (wanted.directory / name).write_bytes(b"\xff rubbish")
        guest = await qemu.start(wanted)
        assert guest.halted
        await guest.destroy()
        await guest.release()
