"""Taking over a QEMU whose monitor does as it likes: ``sleep`` and a monitor of the test."""

import asyncio
import json
import os
import socket
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.unit.node.host.test_process import spawn

from corral.aio import Background
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.host import process
from corral.node.host.proc import acquire_lock
from corral.node.hypervisor import (
    Change,
    Definition,
    GuestError,
    HungError,
    StartError,
    StuckError,
)
from corral.node.qemu import accelerator_probe, guest as guests, hypervisor
from corral.node.qemu.accelerator_probe import Finding
from corral.node.qemu.domain import Accelerator
from corral.node.qemu.guest import MONITOR
from corral.node.qemu.hypervisor import Qemu
from corral.node.qemu.monitor import Monitor, MonitorError


async def requests(reader):
    """What a client asks, one document after the other without anything in between."""
    text = ""
    while data := await reader.read(4096):
        text += data.decode()
        while text := text.lstrip():
            request, end = json.JSONDecoder().raw_decode(text)
            text = text[end:]
            yield request


class FakeMonitor:
    """Speaks QMP with one client at a time; says nothing at all to what is in ``silent_on``."""

    def __init__(self):
        self.silent_on = set()
        self.obeyed = set()
        self.requested = asyncio.Event()
        self.left = asyncio.Event()
        self.writer = None

    async def serve(self, reader, writer):
        self.writer = writer
        send = lambda one: writer.write(json.dumps(one).encode() + b"\r\n")  # noqa: E731
        version = {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""}
        send({"QMP": {"version": version, "capabilities": []}})
        async for request in requests(reader):
            if request["execute"] in self.silent_on:
                self.requested.set()
                continue
            self.obeyed.add(request["execute"])
            answer = {"status": "running"} if request["execute"] == "query-status" else {}
            send({"return": answer, "id": request.get("id")})
        self.left.set()
        writer.close()


@asynccontextmanager
async def running(directory, command=("sleep", "60")):
    """A process with a monitor; it is gone afterwards."""
    monitor = FakeMonitor()
    started = spawn(directory, command)
    server = await asyncio.start_unix_server(monitor.serve, directory / MONITOR)
    try:
        yield monitor
    finally:
        server.close()
        started.kill()
        async with asyncio.timeout(60):
            await started.wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(hypervisor, "START_SECONDS", 1)
    monkeypatch.setattr(process, "_ENDING_SECONDS", 0.1)


async def test_a_monitor_is_closed_when_its_greeting_is_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr(hypervisor, "START_SECONDS", 60)
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        monitor.silent_on = {"query-status"}
        finding = asyncio.create_task(Qemu(tmp_path).find(tmp_path))
        await monitor.requested.wait()
        finding.cancel()
        await asyncio.wait([finding])
        await monitor.left.wait()
        assert process.runs(tmp_path)


async def test_a_silent_monitor_is_reported_and_its_process_runs_on(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        monitor.silent_on = {"query-status"}
        with pytest.raises(GuestError, match=r"query-status: no answer within 1 s"):
            await Qemu(tmp_path).find(tmp_path)
        await monitor.left.wait()
        assert process.runs(tmp_path)
        monitor.silent_on.clear()
        guest = await Qemu(tmp_path).find(tmp_path)
        assert guest is not None
        await guest.release()
        await Qemu(tmp_path).end(tmp_path)
        assert not process.runs(tmp_path)


async def test_a_process_without_progress_hangs_and_a_busy_one_does_not(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        monitor.silent_on = {"query-status"}
        standing, pulse = await process.Process.adopt(tmp_path), None
        while not process.made_no_progress(pulse, pulse := standing.pulse()):  # it is being started
            await asyncio.sleep(0.1)
        standing.release()
        with pytest.raises(HungError, match="query-status: no answer"):
            await Qemu(tmp_path).find(tmp_path)
    async with running(tmp_path, ["sh", "-c", "while :; do :; done"]) as monitor:
        monitor.silent_on = {"query-status"}
        with pytest.raises(GuestError) as raised:
            await Qemu(tmp_path).find(tmp_path)
        assert not isinstance(raised.value, HungError)


@pytest.mark.parametrize("lost", ["the socket's name", "who listens"])
async def test_an_unreachable_monitor_is_reported(tmp_path, lost):
    async with running(tmp_path, ["sh", "-c", "while :; do :; done"]), asyncio.timeout(60):
        (tmp_path / MONITOR).unlink()
        if lost == "who listens":
            with socket.socket(socket.AF_UNIX) as gone:
                gone.bind(str(tmp_path / MONITOR))
        with pytest.raises(HungError, match=r"nobody listens on monitor\.sock"):
            await Qemu(tmp_path).find(tmp_path)


@pytest.mark.parametrize("act", ["pause", "resume", "reset", "reboot"])
async def test_a_command_rejected_during_a_hang_is_not_executed_later(tmp_path, monkeypatch, act):
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        guest = await Qemu(tmp_path).find(tmp_path)
        monkeypatch.setattr(Monitor.execute, "__kwdefaults__", {"seconds": 0.2})
        monitor.silent_on = {"query-status"}
        with pytest.raises(GuestError, match="query-status: no answer"):
            await getattr(guest, act)()
        monitor.silent_on.clear()
        await guest.ping(30)  # has read everything that was sent until now
        assert monitor.obeyed.isdisjoint({"stop", "cont", "system_reset", "system_powerdown"})
        await guest.release()


async def test_a_command_that_may_still_be_executed_is_reported(tmp_path, monkeypatch):
    async with running(tmp_path) as fake, asyncio.timeout(60):
        monitor = await Monitor.connect(tmp_path / MONITOR)
        monkeypatch.setattr(Monitor.execute, "__kwdefaults__", {"seconds": 0.2})
        fake.silent_on = {"stop"}
        with pytest.raises(GuestError, match=r"stop: no answer .*; QEMU may still obey"):
            await monitor.order("stop")
        await monitor.close()


async def test_a_killed_process_that_does_not_exit_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "END_SECONDS", 0.05)
    monkeypatch.setattr(guests, "FLUSH_SECONDS", 0.05)
    async with running(tmp_path), asyncio.timeout(60):
        pid = process.read_record(tmp_path).pid
        with monkeypatch.context() as kernel:  # it holds the process in a call
            kernel.setattr(process.signal, "pidfd_send_signal", lambda *_: None)
            with pytest.raises(
                StuckError, match=rf"QEMU \(process {pid}\) was killed and does not"
            ):
                await Qemu(tmp_path).end(tmp_path)
            watches = watched()
            for _ in range(3):
                with pytest.raises(StuckError):
                    await Qemu(tmp_path).end(tmp_path)
            assert watched() == watches


def watched() -> int:
    """How many processes are watched."""
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum("pidfd" in link for link in links)


async def test_a_running_process_that_cannot_be_checked_does_not_count_as_gone(tmp_path):
    lock = acquire_lock(tmp_path)  # as by a process whose descriptors we may not see
    with pytest.raises(MonitorError, match="cannot be found"):
        await Qemu(tmp_path).find(tmp_path)
    with pytest.raises(StuckError, match="cannot be found"):
        await Qemu(tmp_path).end(tmp_path)
    os.close(lock)
    assert await Qemu(tmp_path).find(tmp_path) is None
    await Qemu(tmp_path).end(tmp_path)


async def test_an_accelerator_probe_that_times_out_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(hypervisor, "START_SECONDS", 0.01)
    with pytest.raises(StartError, match=r"the accelerator is not known after 0\.01 s"):
        await Qemu(tmp_path).boots_at_once()


async def test_a_disconnected_monitor_is_reported(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60), Background() as tasks:
        guest = await Qemu(tmp_path).find(tmp_path)
        tasks.start(guest.watch(), name="watch")
        changes = guest.changes()
        assert await anext(changes) is Change.RESUMED
        monitor.writer.close()
        assert [change async for change in changes][-1] is Change.LOST
        await guest.release()


async def test_an_exited_process_is_gone_and_not_lost(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60), Background() as tasks:
        guest = await Qemu(tmp_path).find(tmp_path)
        tasks.start(guest.watch(), name="watch")
        changes = guest.changes()
        assert await anext(changes) is Change.RESUMED
        await guest.destroy()
        monitor.writer.close()
        assert [change async for change in changes][-1] is Change.GONE
        await guest.release()


async def test_changes_without_a_consumer_are_dropped(tmp_path):
    async with running(tmp_path) as fake, asyncio.timeout(60):
        monitor = await Monitor.connect(tmp_path / MONITOR)
        for name in ["POWERDOWN"] * 1000 + ["RTC_CHANGE", "STOP"]:
            event = {"event": name, "timestamp": {"seconds": 1, "microseconds": 0}}
            fake.writer.write(json.dumps(event).encode() + b"\r\n")
        assert (await monitor.events.get())["event"] == "STOP"
        await monitor.close()


async def test_a_start_cancelled_after_the_spawn_leaves_a_process_that_is_adopted(
    tmp_path, monkeypatch
):
    born, go = threading.Event(), threading.Event()

    def slowly(_command, *, descriptors, output):
        born.set()
        assert go.wait(60)
        return process.launch(["sleep", "60"], descriptors=descriptors, output=output)

    async def found(*_):
        return Finding(Accelerator.TCG, "", "")

    monkeypatch.setattr(hypervisor, "launch", slowly)
    monkeypatch.setattr(hypervisor, "find_accelerator", found)
    qemu = Qemu(tmp_path, program="true")
    await qemu.prepare()
    document = {"metadata": {"name": "a", "uid": "0a"}, "spec": {"domain": {"devices": {}}}}
    vmi = msgspec.convert(document, VirtualMachineInstance)
    starting = asyncio.ensure_future(qemu.start(Definition(vmi=vmi, directory=tmp_path)))
    async with asyncio.timeout(60):
        while not born.is_set():  # the loop goes on meanwhile
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.sleep(0)
        others = os.open(os.devnull, os.O_RDONLY)  # would have a number that was closed too early
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        os.close(others)
        assert process.runs(tmp_path)
        child = await process.Process.adopt(tmp_path)
        assert process.read_record(tmp_path) == child.identity
        assert await child.end()


async def test_a_qemu_installed_later_is_probed_on_first_use(tmp_path, monkeypatch):
    probed = []

    async def found(*_):
        probed.append(program)
        version = "7.2" if program.exists() else ""
        return Finding(Accelerator.TCG, f"look {len(probed)}", version)

    monkeypatch.setattr(hypervisor, "find_accelerator", found)
    program = tmp_path / "qemu"
    qemu = Qemu(tmp_path, program=str(program))
    await qemu.prepare()
    lacks = f"{program} is not installed: apt-get install qemu-system-x86"
    assert qemu.facts()["missing"] == lacks
    assert (await qemu.finding()).reason == "look 1"
    program.symlink_to("/bin/true")
    facts = qemu.facts()
    assert (facts["missing"], facts["reason"]) == ("", "probed with the next machine")
    findings = await asyncio.gather(qemu.finding(), qemu.finding())
    assert [each.reason for each in findings] == ["look 2", "look 2"]
    assert qemu.facts()["reason"] == "look 2"
    assert (await qemu.finding()).reason == "look 2"


@pytest.mark.parametrize("fails", ["find_accelerator", "obstacle"])
@pytest.mark.parametrize("error", [asyncio.CancelledError, OSError])
async def test_a_cancelled_probe_leaves_no_partial_result(tmp_path, monkeypatch, fails, error):
    broken = False

    async def found(*_):
        if broken and fails == "find_accelerator":
            raise error
        version = "7.2" if program.exists() else ""
        return Finding(Accelerator.KVM if version else Accelerator.TCG, "found", version)

    async def obstacle(*_):
        if broken and fails == "obstacle":
            raise error
        return "" if program.exists() else "not installed"

    monkeypatch.setattr(hypervisor, "find_accelerator", found)
    monkeypatch.setattr(hypervisor.chroot, "obstacle", obstacle)
    program = tmp_path / "qemu"
    qemu = Qemu(tmp_path, program=str(program))
    await qemu.prepare()
    program.symlink_to("/bin/true")
    broken, before = True, qemu.facts()
    with pytest.raises(error):
        await qemu.finding()
    assert qemu.facts() == before
    broken = False
    assert (await qemu.finding()).accelerator is Accelerator.KVM
    assert qemu.facts()["files"] == "own"


async def test_an_incomplete_qemu_is_probed_again_for_each_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator_probe, "_obstacle", lambda: "this host has no /dev/kvm")
    program = tmp_path / "qemu"
    qemu = Qemu(tmp_path, program=str(program))
    await qemu.prepare()
    program.write_text(f"#!/bin/sh\n. {tmp_path}/library\n")
    program.chmod(0o755)
    assert (await qemu.finding()).version == ""
    assert qemu.facts()["reason"] == "probed with the next machine"
    (tmp_path / "library").write_text("echo QEMU emulator version 9.9\n")
    assert (await qemu.finding()).version.strip() == "9.9"
    assert qemu.facts()["reason"] == "this host has no /dev/kvm"


async def test_another_qemu_that_is_installed_meanwhile_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator_probe, "_obstacle", lambda: "this host has no /dev/kvm")
    program = tmp_path / "qemu"
    qemu = Qemu(tmp_path, program=str(program))

    def install(version, alias_of):
        program.write_text(
            f"#!/bin/sh\ncase $1 in --version) echo QEMU emulator version {version};; *)\n"
            f'echo "q35  PC (alias of {alias_of})"; echo "{alias_of}  PC";; esac\n'
        )
        program.chmod(0o755)

    install("7.2.9", "pc-q35-7.2")
    await qemu.prepare()
    assert qemu.facts()["launcher"] == "corral/launcher:1 QEMU 7.2.9"
    assert await qemu.launcher("q35") == ("corral/launcher:1 QEMU 7.2.9", "pc-q35-7.2")
    assert await qemu.launcher("pc-q35-2.4") == ("corral/launcher:1 QEMU 7.2.9", "pc-q35-2.4")
    assert not await qemu.refresh()
    install("10.0.1", "pc-q35-10.0")
    assert await qemu.refresh()
    assert qemu.facts()["launcher"] == "corral/launcher:1 QEMU 10.0.1"
    assert not await qemu.refresh()
    install("10.0.12", "pc-q35-10.0")
    assert (await qemu.launcher("q35")).version == "corral/launcher:1 QEMU 10.0.12"
    program.unlink()
    assert not await qemu.refresh()


TYPES = {"q35": "pc-q35-8.2", "pc-q35-8.2": "pc-q35-8.2", "pc-q35-7.2": "pc-q35-7.2"}


@pytest.mark.parametrize(
    ("received", "own", "types", "machine_type"),
    [
        ("", "q35", TYPES, ""),
        ("pc-q35-8.2", "q35", TYPES, ""),
        ("q35", "q35", TYPES, ""),
        ("pc-q35-7.2", "q35", TYPES, "pc-q35-7.2"),
        ("pc-q35-7.2", "", TYPES, "pc-q35-7.2"),
        ("pc-q35-7.2", "pc-q35-7.2", TYPES, ""),
        ("pc-q35-7.2", "q35", {}, "pc-q35-7.2"),
    ],
)
def test_a_guest_is_received_by_a_machine_of_its_own_type(
    tmp_path, received, own, types, machine_type
):
    definition = receiving(tmp_path, received, own)
    assert hypervisor._received_type(definition, types) == machine_type


def test_a_guest_of_a_type_that_qemu_has_dropped_is_not_received(tmp_path):
    with pytest.raises(StartError, match=r"no machine type pc-q35-2\.4 any more \(restart"):
        hypervisor._received_type(receiving(tmp_path, "pc-q35-2.4", "q35"), TYPES)


def receiving(directory, machine_type, own):
    machine = {"machine": {"type": own}} if own else {}
    spec = {"domain": {"devices": {}, **machine}}
    document = {"metadata": {"name": "a", "uid": "0a"}, "spec": spec}
    vmi = msgspec.convert(document, VirtualMachineInstance)
    return Definition(vmi=vmi, directory=directory, receives=True, machine_type=machine_type)
