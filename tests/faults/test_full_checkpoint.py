"""A disk that is full in the middle of a checkpoint, and a memory that was cut."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, os, sys, uuid
from pathlib import Path

from tests.real_machine import definition

from corral.node.hypervisor import Drive, Layer, MemoryDamagedError
from corral.node.images import qcow
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.lifecycle import Machine
from corral.node.machine.memory import checkpoint
from corral.node.network.attachment import Networking
from corral.node.qemu import hypervisor
from corral.node.qemu.accelerator_probe import Finding
from corral.node.qemu.domain import Accelerator
from corral.node.qemu.hypervisor import Qemu
from corral.node.state import machine_record as records
from corral.node.storage.checkpoint_files import CheckpointFiles

checkpoint.FREE_BYTES = 1 << 20  # the rest of a disk is memory here
small = Path(sys.argv[1])
directory, disk, filler = small / str(uuid.uuid4()), small / "disk.raw", small / "filler"
directory.mkdir(mode=0o700)
disk.touch()
os.truncate(disk, 1 << 20)
files = CheckpointFiles(small / "checkpoints" / "uid")
fill_at = ""
started, goes_on = asyncio.Event(), asyncio.Event()

class MachineEvents:
    def changed(self):
        pass

    def vmi_event(self, event_type, reason, message):
        if reason == "Started":
            started.set()

    pod_event = vmi_event

def step(name):
    if name == "goes on":
        goes_on.set()
    if name == fill_at:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

class Hypervisor(Qemu):
    async def split(self, *places):
        step("split")
        await super().split(*places)

async def prepare():
    overlay = directory / "volumes" / "root.qcow2"
    overlay.parent.mkdir(exist_ok=True)
    qcow.create(overlay, disk.stat().st_size, backing=disk, backing_format="raw")
    return {"root": Drive(volume="root", path=overlay, layers=(Layer(disk, "raw"),))}

def idle(_machine, _tasks):
    pass

async def emulated(*_):
    return Finding(Accelerator.TCG, "probed long ago", "7.2")

async def attempt(machine, vmi):
    goes_on.clear()
    try:
        made = await machine.checkpoint.make(files, machine.guest, vmi, "default/base")
    except checkpoint.CheckpointError as error:
        files.remove()
        print(fill_at, "|", error.reason, "|", error.message, "|", await machine.guest.runs())
        return None
    finally:
        filler.unlink(missing_ok=True)
        if machine.record.stands_still:  # not even that it goes on could be recorded
            await goes_on.wait()
    return made

async def main():
    global fill_at
    hypervisor.find_accelerator = emulated
    qemu = Hypervisor(small)
    await qemu.prepare()
    vmi = definition(directory, disk).vmi
    named = {"namespace": "default", "instance": "vm", "pod": "pod", "pod_uid": "pod"}
    machine = Machine(
        records.Record(uid=directory.name, **named), directory, hypervisor=qemu,
        networking=Networking(None), boot_slots=BootSlots(qemu.boots_at_once),
        recorder=MachineEvents(), on_step=step, start_guest_tasks=idle, saved_memories=None,
    )
    life = asyncio.create_task(machine.run(vmi, prepare))
    await started.wait()
    for fill_at in ("checkpoint begun", "stands still", "split"):
        await attempt(machine, vmi)
    fill_at = ""
    made = await attempt(machine, vmi)
    print("complete |", await machine.guest.runs(), "|", machine.record.stands_still)
    os.truncate(files.memory, files.memory.stat().st_size // 2)
    try:
        files.check(made)
    except MemoryDamagedError as error:
        print("damaged |", error)
    life.cancel()
    await asyncio.wait([life])
    await qemu.end(directory)

asyncio.run(main())
"""


def test_a_guest_goes_on_when_the_disk_is_full_in_the_middle_of_a_checkpoint(tmp_path):
    script = 'mount -t tmpfs -o size=230m,mode=755 none "$1" && exec "$2" -c "$3" "$1"'
    alone = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    rights = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    done = subprocess.run(
        ["unshare", *rights, *alone, "sh", "-c", script, "sh", tmp_path, sys.executable, PROGRAM],
        capture_output=True, text=True, check=False, timeout=500, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-3000:]}"
    *failures, complete, damaged = lines
    assert complete == "complete | True | False"
    assert damaged == "damaged | its memory was changed or cut since it was made"
    found = [line.split(" | ") for line in failures]
    steps = ["checkpoint begun", "stands still", "split"]
    assert [each[0] for each in found] == steps
    for _, reason, why, runs in found:
        assert (reason, runs) == ("CheckpointFailed", "True")
        assert "No space left on device" in why
