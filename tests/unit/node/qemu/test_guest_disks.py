"""A guest and its disks: growth, events of errors, and the release of disks by QEMU."""

import asyncio
import os

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.host.proc import acquire_lock
from corral.node.host.process import Process
from corral.node.qemu import guest as guests
from corral.node.qemu.guest import QemuGuest
from corral.node.state import events

DISKS = [{"name": "root"}, {"name": "data"}]
VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {
            "domain": {"devices": {"disks": DISKS}},
            "volumes": [
                {"name": "root", "containerDisk": {"image": "x"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
    },
    VirtualMachineInstance,
)


class Monitor:
    """Answers as a test says."""

    def __init__(self, answer=None):
        self.events = asyncio.Queue()
        self.commands = []
        self.answer = answer

    async def execute(self, command, arguments=None):
        self.commands.append((command, arguments))
        return self.answer


class MachineEvents:
    """Remembers what was said of the instance."""

    def __init__(self):
        self.said = []

    def vmi_event(self, *event):
        self.said.append(event)


@pytest.fixture
async def started(tmp_path):
    """Starts a program in QEMU's place."""
    processes = []

    def start(*command):
        lock = acquire_lock(tmp_path)
        output = os.open(os.devnull, os.O_WRONLY)
        process = Process.spawn(command, tmp_path, descriptors=[lock], output=output)
        os.close(lock)
        os.close(output)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        await process.wait()


def guest_of(tmp_path, process, monitor=None):
    return QemuGuest(tmp_path, process, monitor or Monitor(), "running")


async def test_a_disk_is_resized_by_its_block_node(tmp_path, started):
    monitor = Monitor()
    await guest_of(tmp_path, started("sleep", "60"), monitor).grow(VMI, "data", 4096)
    assert monitor.commands == [("block_resize", {"node-name": "disk1", "size": 4096})]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("nospace", "VM Paused due to not enough space on volume: data"),
        ("failed", "VM Paused due to IO error at the volume: data"),
    ],
)
async def test_the_event_of_an_io_error_names_the_volume(tmp_path, started, status, text):
    blocks = [
        {"qdev": "a", "io-status": "ok", "inserted": {"node-name": "disk0"}},
        {"qdev": "b", "io-status": status, "inserted": {"node-name": "disk1"}},
        {"qdev": "cdrom"},
        {"qdev": "c", "io-status": status, "inserted": {"node-name": "another"}},
    ]
    recorder = MachineEvents()
    guest = guest_of(tmp_path, started("sleep", "60"), Monitor(blocks))
    await events.report_io_errors(guest, VMI, recorder)
    assert recorder.said == [("Warning", "IOerror", text)]


async def test_qemu_flushes_disks_before_it_ends(tmp_path, started):
    mark = tmp_path / "mark"
    ready = tmp_path / "ready"
    script = f"trap 'echo kept > {mark}; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    process = started("sh", "-c", script)
    while not ready.exists():
        await asyncio.sleep(0.01)
    await guest_of(tmp_path, process).destroy()
    assert mark.read_text() == "kept\n"


async def test_qemu_that_does_not_end_is_killed(tmp_path, started, monkeypatch):
    monkeypatch.setattr(guests, "FLUSH_SECONDS", 0.1)
    ready = tmp_path / "ready"
    process = started("sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.01; done")
    while not ready.exists():
        await asyncio.sleep(0.01)
    await guest_of(tmp_path, process).destroy()
    assert process.ended
