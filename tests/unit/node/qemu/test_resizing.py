"""vCPUs and memory plugged in by a monitor that keeps books of them, as QEMU does."""

import asyncio

import pytest

from corral.node.hypervisor import GuestError, GuestSize
from corral.node.qemu import monitor as real
from corral.node.qemu.monitor import MonitorError
from corral.node.qemu.resizing import SIZE_CHANGED, QemuResizing

GIB = 1 << 30


class Monitor:
    """QEMU's side of it: two threads a socket, of which ``present`` vCPUs are there."""

    _filter, _is_awaited = real.Monitor._filter, real.Monitor._is_awaited

    def __init__(self, *, present=2, sockets=3, memory=True):
        self.present = [divmod(number, 2) for number in range(present)]
        self.sockets = sockets
        self.code = 0
        self.memory = {"id": "memory0", "size": 0, "requested-size": 0} if memory else None
        self.events, self.awaited, self.awaited_processors = asyncio.Queue(), set(), 0

    async def execute(self, command, arguments=None, **_):
        return getattr(self, command.replace("-", "_"))(arguments or {})

    def query_hotpluggable_cpus(self, _):
        places = [(socket, thread) for socket in range(self.sockets) for thread in range(2)]
        return [
            {
                "type": "qemu64-x86_64-cpu",
                "vcpus-count": 1,
                "props": {"socket-id": place[0], "core-id": 0, "thread-id": place[1]},
                **({"qom-path": "/machine/x"} if place in self.present else {}),
            }
            for place in reversed(places)
        ]

    def query_memory_size_summary(self, _):
        return {"base-memory": GIB, "plugged-memory": 0}

    def query_memory_devices(self, _):
        other = {"type": "dimm", "data": {"id": "other", "size": 5}}
        own = [{"type": "virtio-mem", "data": self.memory}] if self.memory else []
        return [other, *own]

    def x_query_jit(self, _):
        if self.code is None:
            raise MonitorError("JIT information is only available with accel=tcg")
        text = f"Translation buffer state:\ngen code size       {self.code}/{32 << 20}\nTB count 9"
        return {"human-readable-text": text}

    def device_add(self, device):
        assert device["driver"] == "qemu64-x86_64-cpu"
        self.present.append((device["socket-id"], device["thread-id"]))

    def qom_set(self, change):
        assert change["path"] == "/machine/peripheral/memory0"
        self.memory[change["property"]] = change["value"]


async def test_vcpus_are_plugged_in_next_to_those_that_are_there():
    monitor = Monitor()
    resizing = QemuResizing(monitor)
    await resizing.plug_processors(4)
    assert monitor.present == [(0, 0), (0, 1), (1, 0), (1, 1)]
    await resizing.plug_processors(4)
    assert len(monitor.present) == 4, "it can be repeated"
    assert await resizing.query() == GuestSize(4, GIB)


async def test_more_vcpus_than_there_is_room_for_are_refused():
    with pytest.raises(GuestError, match="room for 6 vCPUs"):
        await QemuResizing(Monitor()).plug_processors(8)


@pytest.mark.parametrize(("code", "fits"), [(None, True), (21 << 20, True), (23 << 20, False)])
async def test_an_emulated_machine_needs_room_for_the_code_of_a_vcpu(code, fits):
    monitor = Monitor()
    monitor.code = code
    if fits:
        await QemuResizing(monitor).plug_processors(4)
        assert len(monitor.present) == 4
    else:
        with pytest.raises(GuestError, match="no room for another vCPU at present"):
            await QemuResizing(monitor).plug_processors(4)
        assert len(monitor.present) == 2


async def test_memory_is_requested_from_the_guest():
    monitor = Monitor()
    resizing = QemuResizing(monitor)
    await resizing.request_memory(2 * GIB)
    monitor.memory["size"] = GIB
    size = await resizing.query()
    assert size == GuestSize(2, GIB, GIB, 2 * GIB)
    assert size.memory_bytes == 2 * GIB


async def test_a_machine_without_room_for_memory_refuses_it():
    with pytest.raises(GuestError, match="without room for more memory"):
        await QemuResizing(Monitor(memory=False)).request_memory(GIB)


async def test_what_the_guest_takes_is_notified():
    heard = []
    resizing = QemuResizing(Monitor())
    resizing.on_changed(lambda: heard.append("changed"))
    resizing.on_event({"event": "STOP"})
    assert heard == []
    resizing.on_event({"event": SIZE_CHANGED, "data": {"id": "memory0", "size": GIB}})
    resizing.on_event({"event": "ACPI_DEVICE_OST", "data": {}})
    assert heard == ["changed", "changed"]


async def test_a_guest_cannot_flood_the_queue_with_reports_of_vcpus():
    monitor = Monitor()
    report = {"event": "ACPI_DEVICE_OST", "data": {"info": {"slot-type": "CPU"}}}
    monitor._filter(report)
    assert monitor.events.empty(), "nothing was plugged in"
    await QemuResizing(monitor).plug_processors(4)
    for _ in range(5):
        monitor._filter(report)
    assert monitor.events.qsize() == 2
