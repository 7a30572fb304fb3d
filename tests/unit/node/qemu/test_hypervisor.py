"""Taking over a QEMU whose monitor does as it likes: ``sleep`` and a monitor of the test."""

import asyncio
import json
import os
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.unit.node.test_process import spawn

from corral.aio import Background
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node import process
from corral.node.hypervisor import Change, Definition, GuestError
from corral.node.qemu import hypervisor
from corral.node.qemu.domain import Accelerator
from corral.node.qemu.guest import MONITOR
from corral.node.qemu.hypervisor import Qemu
from corral.node.qemu.monitor import Monitor
from corral.node.qemu.probe import Finding


class FakeMonitor:
    """Speaks QMP with one client at a time; says nothing at all to what is in ``silent_on``."""

    def __init__(self):
        self.silent_on = set()
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.writer = None

    async def serve(self, reader, writer):
        self.writer = writer
        send = lambda one: writer.write(json.dumps(one).encode() + b"\r\n")  # noqa: E731
        version = {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""}
        send({"QMP": {"version": version, "capabilities": []}})
        while data := await reader.read(4096):  # one request: its client waits for each answer
            request = json.loads(data)
            if request["execute"] in self.silent_on:
                self.asked.set()
                continue
            answer = {"status": "running"} if request["execute"] == "query-status" else {}
            send({"return": answer, "id": request.get("id")})
        self.left.set()
        writer.close()


@asynccontextmanager
async def running(directory):
    """A process with a monitor; it is gone afterwards."""
    monitor = FakeMonitor()
    started = spawn(directory, ["sleep", "60"])
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
    monkeypatch.setattr(hypervisor, "START_SECONDS", 0.2)
    monkeypatch.setattr(process, "_LAST_BREATH_SECONDS", 0.1)


async def test_a_monitor_is_let_go_when_its_greeting_is_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr(hypervisor, "START_SECONDS", 60)
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        monitor.silent_on = {"query-status"}
        finding = asyncio.create_task(Qemu(tmp_path).find(tmp_path))
        await monitor.asked.wait()
        finding.cancel()
        await asyncio.wait([finding])
        await monitor.left.wait()
        assert process.runs(tmp_path)


async def test_a_silent_monitor_is_told_and_its_process_runs_on(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60):
        monitor.silent_on = {"query-status"}
        with pytest.raises(GuestError, match=r"query-status: no answer within 0\.2 s"):
            await Qemu(tmp_path).find(tmp_path)
        await monitor.left.wait()
        assert process.runs(tmp_path)
        monitor.silent_on.clear()
        guest = await Qemu(tmp_path).find(tmp_path)
        assert guest is not None
        await guest.release()
        await Qemu(tmp_path).end(tmp_path)
        assert not process.runs(tmp_path)


async def test_a_monitor_that_hangs_up_is_told(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60), Background() as tasks:
        guest = await Qemu(tmp_path).find(tmp_path)
        tasks.start(guest.watch(), name="watch")
        changes = guest.changes()
        assert await anext(changes) is Change.RESUMED
        monitor.writer.close()
        assert [change async for change in changes][-1] is Change.LOST
        await guest.release()


async def test_a_process_that_ends_is_gone_and_not_lost(tmp_path):
    async with running(tmp_path) as monitor, asyncio.timeout(60), Background() as tasks:
        guest = await Qemu(tmp_path).find(tmp_path)
        tasks.start(guest.watch(), name="watch")
        changes = guest.changes()
        assert await anext(changes) is Change.RESUMED
        await guest.destroy()
        monitor.writer.close()
        assert [change async for change in changes][-1] is Change.GONE
        await guest.release()


async def test_news_that_nobody_wants_are_not_kept(tmp_path):
    async with running(tmp_path) as fake, asyncio.timeout(60):
        monitor = await Monitor.connect(tmp_path / MONITOR)
        for name in ["POWERDOWN"] * 1000 + ["RTC_CHANGE", "STOP"]:
            event = {"event": name, "timestamp": {"seconds": 1, "microseconds": 0}}
            fake.writer.write(json.dumps(event).encode() + b"\r\n")
        assert (await monitor.events.get())["event"] == "STOP"
        await monitor.close()


async def test_who_is_cancelled_while_qemu_is_born_leaves_it_to_be_found(tmp_path, monkeypatch):
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
