"""The manager is killed between any two steps of saving a real machine, and of going on from it."""

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path

import msgspec
import pytest
from tests.real_machine import hypervisor

from corral.node.host import process
from corral.node.qemu.guest import MONITOR
from corral.node.qemu.monitor import Monitor
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Outcome, Stage
from corral.node.storage.saved_memory import SavedMemory

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]

MANAGER = """
import asyncio, os, signal, sys
from pathlib import Path

import msgspec
from tests.real_machine import definition

from corral.node.state import machine_record as records
from corral.node.machine.boot_slots import BootSlots
from corral.node.hypervisor import Drive, Layer
from corral.node.images import qcow
from corral.node.machine.lifecycle import Machine
from corral.node.storage.saved_memory import SavedMemory
from corral.node.network.attachment import Networking
from corral.node.qemu import hypervisor
from corral.node.qemu.domain import Accelerator
from corral.node.qemu.hypervisor import Qemu
from corral.node.qemu.monitor import Monitor
from corral.node.qemu.accelerator_probe import Finding

verb, kill_at, directory, disk, place, identity = sys.argv[1:]
directory, disk, place = Path(directory), Path(disk), Path(place)

class SavedMemoryClaims:
    async def find(self, key):
        return SavedMemory(place)

class MachineEvents:
    def changed(self):
        pass

    def vmi_event(self, event_type, reason, message):
        print(event_type, reason, message, flush=True)
        if verb == "restore" and reason in ("Restored", "Started"):
            asyncio.get_running_loop().call_soon(sys.exit)

    pod_event = vmi_event

def step(name):
    print("step", name, flush=True)
    if name == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

class SlowMonitor(Monitor):
    # A memory is written so slowly that it takes minutes.

    async def execute(self, command, arguments=None, **how):
        if command == "migrate-set-parameters":
            arguments = {"max-bandwidth": 4096}
        answer = await super().execute(command, arguments, **how)
        if command == "migrate":
            step("writing")
        return answer

async def prepare():
    overlay = directory / "volumes" / "root.qcow2"
    overlay.parent.mkdir(exist_ok=True)
    if not overlay.exists():
        qcow.create(overlay, disk.stat().st_size, backing=disk, backing_format="raw")
    return {"root": Drive(volume="root", path=overlay, layers=(Layer(disk, "raw"),))}

def idle(_machine, _tasks):
    pass

async def emulated(*_):
    return Finding(Accelerator.TCG, "probed long ago", "7.2")

async def main():
    hypervisor.find_accelerator = emulated
    if kill_at == "writing":
        hypervisor.Monitor = SlowMonitor
    qemu = Qemu(directory.parent)
    await qemu.prepare()
    vmi = definition(directory, disk).vmi
    vmi.metadata.annotations["corral.dev/identity"] = identity
    if verb == "restore":
        vmi.metadata.annotations["corral.dev/restore-from"] = "memory"
    named = {"namespace": "default", "instance": "vm", "pod": "pod", "pod_uid": "pod"}
    record = records.read(directory) or records.Record(uid=directory.name, **named)
    machine = Machine(
        record, directory, hypervisor=qemu, networking=Networking(None),
        boot_slots=BootSlots(qemu.boots_at_once), recorder=MachineEvents(), on_step=step,
        start_guest_tasks=idle, saved_memories=SavedMemoryClaims(),
    )
    if verb == "save":
        machine.save("memory", 0, in_order=True)
    await machine.run(vmi, prepare)

asyncio.run(main())
"""


class Host:
    """A data directory on which managers come and go while QEMU stays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.identity = str(uuid.uuid4())
        self.place = SavedMemory(directory / "storage" / "pvc-1")
        self.place.directory.mkdir(parents=True)
        self.disk = directory / "empty.raw"
        self.disk.touch()
        os.truncate(self.disk, 1 << 20)

    def new(self) -> Path:
        return self.directory / str(uuid.uuid4())

    async def manager(self, verb: str, machine: Path, kill_at: str = "") -> str:
        """Run a manager that saves or restores a machine; return its output."""
        arguments = (verb, kill_at, machine, self.disk, self.place.directory, self.identity)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MANAGER, *map(str, arguments),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await child.communicate()
        assert child.returncode == (-signal.SIGKILL if kill_at else 0), output.decode()
        return output.decode()


@pytest.fixture
async def host(tmp_path):
    async with hypervisor(tmp_path):
        yield Host(tmp_path)


def arguments_of(machine: Path) -> list[str]:
    pid = process.find(machine).pid
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


async def goes_on(host: Host) -> None:
    """Another machine goes on from the memory, and nobody after that."""
    machine = host.new()
    output = await host.manager("restore", machine)
    assert "Restored" in output
    assert "-incoming" in arguments_of(machine)
    assert host.place.read() is None
    late = await host.manager("restore", host.new())
    assert "NothingToRestore" in late


@pytest.mark.parametrize("kill_at", ["saving", "writing", "written", "sealed", "ended"])
async def test_a_save_survives_a_kill_of_the_manager_at_any_step(host, kill_at):
    machine = host.new()
    await host.manager("save", machine, kill_at)
    await host.manager("save", machine)
    record = records.read(machine)
    assert (record.stage, record.outcome) == (Stage.ENDED, Outcome.SUCCEEDED)
    assert not process.runs(machine)
    assert host.place.read().identity == host.identity
    assert not host.place.read().paused
    await goes_on(host)


async def test_a_guest_whose_save_is_withdrawn_runs_on(host):
    machine = host.new()
    await host.manager("save", machine, "writing")
    await host.manager("leave", machine, "not saved")
    assert records.read(machine).stage is Stage.STARTED
    monitor = await Monitor.connect(machine / MONITOR, seconds=300)
    assert (await monitor.execute("query-migrate"))["status"] == "cancelled"
    assert (await monitor.execute("query-status"))["status"] == "running"
    await monitor.close()


@pytest.mark.parametrize(
    "kill_at", ["taken out", "prepared", "spawned", "loaded", "unsealed", "resumed"]
)
async def test_a_restore_survives_a_kill_of_the_manager_at_any_step(host, kill_at):
    await host.manager("save", host.new())
    machine = host.new()
    await host.manager("restore", machine, kill_at)
    output = await host.manager("restore", machine)
    assert "Restored" in output
    assert "-incoming" in arguments_of(machine)
    assert host.place.read() is None


@pytest.mark.parametrize(("kill_at", "lost"), [("loaded", False), ("unsealed", True)])
async def test_memory_is_lost_with_qemu_only_if_the_guest_may_have_run(host, kill_at, lost):
    await host.manager("save", host.new())
    machine = host.new()
    await host.manager("restore", machine, kill_at)
    os.kill(process.find(machine).pid, signal.SIGKILL)
    while process.runs(machine):
        await asyncio.sleep(0.01)
    output = await host.manager("restore", machine)
    if lost:
        assert "crashed" in output
        assert records.read(machine).outcome is Outcome.FAILED
    else:
        assert "Restored" in output


async def test_incompatible_memory_is_discarded_after_a_kill_at_any_step(host):
    await host.manager("save", host.new())
    seal = host.place.memory.with_name("machine.json")
    document = msgspec.json.decode(seal.read_bytes())
    document["shape"][0] = "QEMU 6.0"
    seal.write_bytes(msgspec.json.encode(document))
    machine = host.new()
    for kill_at in ("renewed", "given up"):
        await host.manager("restore", machine, kill_at)
    output = await host.manager("restore", machine)
    assert "Restored" not in output
    assert "-incoming" not in arguments_of(machine)
    assert not host.place.memory.exists()
