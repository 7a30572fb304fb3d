"""Plugs vCPUs and memory into a running QEMU.

QEMU itself keeps the state: a manager that is killed meanwhile queries it.  Guests see vCPUs at
once, and bring them online by a udev rule or by their agent; memory is that of a virtio-mem
device, which every machine with room has, empty at first, and whose size the guest follows.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from corral.node.hypervisor import GuestError, GuestSize
from corral.node.qemu.devices.memory import MEMORY
from corral.node.qemu.monitor import PROCESSOR_SEEN, Event, Monitor, MonitorError

SIZE_CHANGED: Final = "MEMORY_DEVICE_SIZE_CHANGE"
_CODE: Final = re.compile(r"gen code size\s+(\d+)/(\d+)")
_REGION_BYTES: Final = 2 << 20
_TOPOLOGY: Final = ("socket-id", "die-id", "core-id", "thread-id")


class QemuResizing:
    """The size of one guest (``corral.node.hypervisor.Resizing``)."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._on_changed: Callable[[], None] = lambda: None

    def on_changed(self, listener: Callable[[], None]) -> None:
        self._on_changed = listener

    def on_event(self, event: Event) -> None:
        """Notify the listener when the guest has seen vCPUs, or taken or released memory."""
        if event["event"] in {SIZE_CHANGED, PROCESSOR_SEEN}:
            self._on_changed()

    async def query(self) -> GuestSize:
        slots = await self._slots()
        summary = await self._monitor.execute("query-memory-size-summary")
        memory = await self._memory()
        return GuestSize(
            processors=sum(each["vcpus-count"] for each in slots if "qom-path" in each),
            boot_bytes=summary["base-memory"],
            plugged_bytes=memory.get("size", 0),
            requested_bytes=memory.get("requested-size", 0),
        )

    async def plug_processors(self, count: int) -> None:
        slots = await self._slots()
        missing = count - sum(each["vcpus-count"] for each in slots if "qom-path" in each)
        free = [each for each in slots if "qom-path" not in each]
        if missing > len(free):
            raise GuestError(f"the machine was started with room for {len(slots)} vCPUs")
        if missing > 0:
            await self._require_regions(len(slots), len(slots) - len(free) + missing)
        for slot in sorted(free, key=_place)[: max(0, missing)]:
            self._monitor.awaited_processors += 1
            await self._monitor.execute("device_add", {"driver": slot["type"], **slot["props"]})

    async def _require_regions(self, most: int, count: int) -> None:
        """Check that an emulated machine has room for the code of the vCPUs.  Raises GuestError.

        Each vCPU's thread begins with a region of the cache of translated code; QEMU aborts if none
        is free (tcg_region_initial_alloc), until the cache is full and is flushed.  ``most``: vCPUs
        that the machine has room for, by which the cache is divided (tcg_n_regions).
        """
        try:
            report = (await self._monitor.execute("x-query-jit"))["human-readable-text"]
        except MonitorError:
            return  # it is not emulated
        if (found := _CODE.search(report)) is None:
            raise GuestError("QEMU does not say how much room its translated code has")
        used, capacity = int(found[1]), int(found[2])
        region = capacity // max(1, min(capacity // _REGION_BYTES, most * 8))
        # Those that are there have begun a region each, and one more may be taken meanwhile.
        if capacity - used < (count + 1) * region:
            raise GuestError("QEMU's emulation has no room for another vCPU at present")

    async def request_memory(self, plugged_bytes: int) -> None:
        memory = await self._memory()
        if not memory:
            raise GuestError("the machine was started without room for more memory")
        path = f"/machine/peripheral/{MEMORY}"
        value = {"path": path, "property": "requested-size", "value": plugged_bytes}
        await self._monitor.execute("qom-set", value)

    async def _slots(self) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = await self._monitor.execute("query-hotpluggable-cpus")
        return slots

    async def _memory(self) -> Mapping[str, Any]:
        """Return the state of the virtio-mem device; empty without one."""
        devices = await self._monitor.execute("query-memory-devices")
        return next(_named(devices), {})


def _named(devices: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (each["data"] for each in devices if each["data"].get("id") == MEMORY)


def _place(slot: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the place of a vCPU: a new one goes next to those that are there."""
    return tuple(slot["props"].get(name, 0) for name in _TOPOLOGY)
