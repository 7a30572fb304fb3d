"""The memory of a guest in a file: its conditions, and the commands to QEMU (a fake)."""

import asyncio
import os
import sys
from itertools import pairwise

import msgspec
import pytest

from corral.node.hypervisor import MemoryMisfitError
from corral.node.qemu import migration_file
from corral.node.qemu.monitor import MonitorError

ARGUMENTS = [
    "qemu-system-x86_64",
    "-name",
    "guest=default_vm_1",
    "-S",
    "-uuid",
    "6a1a24a1-4061-4607-8bf4-a3963d0c5895",
    "-machine",
    "q35,acpi=on",
    "-m",
    "62500K",
    "-add-fd",
    "fd=11,set=11",
    "-chardev",
    "socket,id=agent0,fd=9,server=on,wait=off",
    "-device",
    "qemu-xhci,id=usb0",
    "-device",
    '{"driver":"virtio-net-pci","id":"nic0","netdev":"net0","mac":"02:b7:fa:9f:36:75"}',
    "-device",
    '{"driver":"pvpanic"}',
]
SHAPE = (
    "QEMU 7.2",
    "-machine q35,acpi=on",
    "-m 62500K",
    "-device qemu-xhci,id=usb0",
    '-device {"driver":"virtio-net-pci","id":"nic0","netdev":"net0","mac":"02:b7:fa:9f:36:75"}',
    '-device {"driver":"pvpanic"}',
)
PRESENT = ("usb0", "nic0")


class Fake:
    """A monitor that answers as a test says, and records its commands."""

    def __init__(
        self, *, present=PRESENT, status=None, statuses=("completed",), state="running"
    ) -> None:
        self.state = state
        self.present = present
        self.status = status
        self.statuses = list(statuses)
        self.commands: list[str] = []
        self.add_fd: list[bytes] = []
        self.capabilities = {"pause-before-switchover": True}  # of a live migration that failed
        self.events: asyncio.Queue = asyncio.Queue()
        self.ends: asyncio.Queue[str] = asyncio.Queue()

    async def execute(self, command, arguments=None, *, seconds=0):
        self.commands.append(command)
        listed = (arguments or {}).get("capabilities", ())
        self.capabilities |= {each["capability"]: each["state"] for each in listed}
        match command:
            case "query-version":
                return {"qemu": {"major": 7, "minor": 2, "micro": 22}}
            case "query-status":
                return {"status": self.state}
            case "cont":
                self.state = "running"
            case "stop" if self.state == "running":
                self.state = "paused"
            case "qom-list":
                devices = [{"name": name, "type": "child<device>"} for name in self.present]
                return [{"name": "type", "type": "string"}, *devices]
            case "query-migrate":
                return {"status": self.status, "error-desc": "no space"}
            case "migrate_cancel":
                self.ends.put_nowait("cancelled")
            case "migrate" | "migrate-incoming":
                for status in self.statuses:
                    self.events.put_nowait({"event": "MIGRATION", "data": {"status": status}})
                    self.ends.put_nowait(status)
        return {}

    async def lend(self, descriptor, command, arguments):
        self.commands.append(command)
        self.add_fd.append(os.read(descriptor, 9))


@pytest.fixture
async def process():
    """A process that was called as QEMU is."""
    code = "import sys; sys.stdin.read()"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *ARGUMENTS[1:], stdin=asyncio.subprocess.PIPE
    )
    yield child.pid
    child.stdin.close()
    await child.wait()


@pytest.fixture
def called(monkeypatch):
    monkeypatch.setattr(migration_file, "_arguments", lambda pid: ARGUMENTS[1:])


@pytest.fixture
def descriptor(tmp_path):
    opened = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


async def test_saved_arguments_are_those_of_the_process(process):
    found = migration_file._arguments(process)
    assert found[-len(ARGUMENTS) + 1 :] == ARGUMENTS[1:]


async def test_a_machine_shape_has_the_devices_of_the_guest(called):
    assert await migration_file.shape(Fake(), 1) == SHAPE


async def test_a_hotpluggable_disk_is_matched_by_its_full_name(monkeypatch):
    disk = '{"driver":"virtio-blk-pci","id":"plug-data.claim.of.data","bus":"plug0"}'
    began = [*ARGUMENTS[1:], "-device", disk]
    monkeypatch.setattr(migration_file, "_arguments", lambda pid: began)
    there = Fake(present=(*PRESENT, "plug-data.claim.of.data"))
    assert await migration_file.shape(there, 1) == (*SHAPE, f"-device {disk}")
    another = Fake(present=(*PRESENT, "plug-data.claim.of.another"))
    with pytest.raises(MonitorError, match=r"claim\.of\.another was plugged in or unplugged"):
        await migration_file.shape(another, 1)


@pytest.mark.parametrize(
    ("present", "culprit"),
    [((*PRESENT, "plugged0"), "plugged0"), (PRESENT[:1], "nic0")],
)
async def test_hotplugged_devices_prevent_a_restore(called, present, culprit):
    with pytest.raises(MonitorError, match=culprit):
        await migration_file.shape(Fake(present=present), 1)


async def test_a_changed_medium_counts_as_present_at_the_start(monkeypatch):
    def device(**drive):
        options = {"driver": "ide-cd", "id": "tray-cd", **drive, "bus": "sata0.0"}
        return ["-device", msgspec.json.encode(options).decode()]

    class Drives(Fake):
        async def execute(self, command, arguments=None, *, seconds=0):
            if command == "query-block":
                shown = {"inserted": {"node-name": self.medium}} if self.medium else {}
                return [{"qdev": "tray-cd", **shown}]
            return await super().execute(command, arguments, seconds=seconds)

    async def shape(began, medium=""):
        monkeypatch.setattr(migration_file, "_arguments", lambda pid: [*ARGUMENTS[1:], *began])
        fake = Drives(present=(*PRESENT, "tray-cd"))
        fake.medium = medium
        return await migration_file.shape(fake, 1)

    empty, full = device(), device(drive="plug-1")
    assert await shape(empty) == await shape(full)
    assert await shape(empty, "plug-1") == await shape(full, "plug-1")
    assert await shape(full, "plug-2") != await shape(full, "plug-1") != await shape(full)


@pytest.mark.parametrize("state", ["running", "paused", "io-error", "postmigrate"])
async def test_a_guest_is_stopped_before_it_is_saved(state):
    monitor = Fake(state=state)
    await migration_file.stop(monitor)
    assert monitor.state == ("io-error" if state == "io-error" else "paused")
    assert ("cont" in monitor.commands) is (state == "postmigrate")


@pytest.mark.parametrize("state", ["shutdown", "guest-panicked", "internal-error"])
async def test_a_finished_guest_is_not_saved(state):
    with pytest.raises(MonitorError, match=state):
        await migration_file.stop(Fake(state=state))


async def test_memory_is_written_once_qemu_has_the_file(descriptor):
    monitor = Fake()
    await migration_file.save(monitor, descriptor, monitor.ends)
    order = ["migrate-set-capabilities", "migrate-set-parameters", "getfd", "migrate"]
    assert [one for one in monitor.commands if one in order] == order


async def test_a_save_does_not_wait_for_a_target_as_a_live_migration_does(descriptor):
    monitor = Fake()
    await migration_file.save(monitor, descriptor, monitor.ends)
    assert monitor.capabilities["events"] is True
    assert monitor.capabilities["pause-before-switchover"] is False


async def test_a_failed_migration_has_qemus_message(descriptor):
    monitor = Fake(statuses=["failed"], status="failed")
    with pytest.raises(MonitorError, match="no space"):
        await migration_file.save(monitor, descriptor, monitor.ends)


async def test_a_migration_of_an_earlier_manager_is_cancelled_first(descriptor):
    monitor = Fake(status="active")
    await migration_file.save(monitor, descriptor, monitor.ends)
    assert ("migrate_cancel", "migrate") in pairwise(
        one for one in monitor.commands if one in {"migrate_cancel", "migrate"}
    )


async def test_memory_is_restored_from_its_file(tmp_path):
    file = tmp_path / "memory"
    file.write_bytes(b"remember")
    monitor = Fake()
    await migration_file.load(monitor, file, SHAPE, SHAPE)
    assert monitor.add_fd == [b"remember"]
    assert monitor.commands[-1] == "migrate-incoming"


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (("QEMU 8.0", *SHAPE[1:]), "saved with QEMU 7.2, and the VMI has QEMU 8.0"),
        (SHAPE[:-1], "saved with -device .*pvpanic.*does not have"),
        ((*SHAPE, "-device new"), "the VMI has -device new"),
    ],
)
async def test_memory_is_not_restored_into_a_different_machine(tmp_path, now, message):
    monitor = Fake()
    with pytest.raises(MemoryMisfitError, match=message):
        await migration_file.load(monitor, tmp_path / "memory", now, SHAPE)
    assert monitor.commands == []


async def test_missing_memory_is_an_error(tmp_path):
    with pytest.raises(MemoryMisfitError, match="cannot be read"):
        await migration_file.load(Fake(), tmp_path / "memory", SHAPE, SHAPE)


@pytest.mark.parametrize("end", ["failed", "END"])
async def test_memory_rejected_by_qemu_is_an_error(tmp_path, end):
    file = tmp_path / "memory"
    file.touch()
    monitor = Fake(statuses=["active", end] if end == "failed" else ["active"])
    if end == "END":
        monitor.events.put_nowait({"event": "END"})
    with pytest.raises(MemoryMisfitError, match="refuses"):
        await migration_file.load(monitor, file, SHAPE, SHAPE)
