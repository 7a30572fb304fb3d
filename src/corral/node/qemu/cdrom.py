"""The CD-ROM drives of a running QEMU, and changes of their media.

A medium is changed while the tray is open, in several commands.  A QEMU object marks each tray that
was opened here: if the manager is killed meanwhile, the next one closes it.  A tray that the guest
has opened stays open.  (QEMU removes unused descriptors when the manager's connection closes.)
"""

from collections.abc import Iterable, Mapping

from corral.node.hypervisor import GuestError
from corral.node.qemu.devices.plugs import TRAY, tray_name
from corral.node.qemu.monitor import TRAY_MOVED, Event, Monitor, MonitorError, device_id

_OPENED = "opened-"
"""The prefix of marks; the volume follows."""
_IS_SHUT = "is not open"
"""A part of QEMU's error message when the guest has locked the tray, so has to open it itself."""


class Trays:
    """The drives of one guest whose media are hotplugged, by volume."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def freed(self, event: Event) -> str | None:
        """Return the volume whose tray the guest has opened on request; None for other events."""
        if event["event"] != TRAY_MOVED:
            return None
        return device_id(event["data"]["id"]).removeprefix(TRAY)

    async def media(self, devices: Iterable[str]) -> Mapping[str, str]:
        """Return the top block node of the medium in each drive that has one, by device."""
        if not _has_trays(devices):
            return {}
        return {
            device: block["inserted"]["node-name"]
            for block in await self._monitor.execute("query-block")
            if (device := device_id(block.get("qdev", ""))).startswith(TRAY) and "inserted" in block
        }

    async def shut(self, devices: Iterable[str]) -> None:
        """Close the trays that were opened here."""
        if not _has_trays(devices):
            return
        for mark in await self._marks():
            drive = {"id": tray_name(mark.removeprefix(_OPENED))}
            await self._monitor.execute("blockdev-close-tray", drive)
            await self._monitor.execute("object-del", {"id": mark})

    async def load(self, volume: str, node: str) -> None:
        """Insert a medium, in place of the present one; ``shut`` completes the change."""
        if not await self.empty(volume):
            raise GuestError("the guest keeps its tray locked")
        medium = {"id": tray_name(volume), "node-name": node}
        await self._monitor.execute("blockdev-insert-medium", medium)

    async def empty(self, volume: str) -> bool:
        """Open a tray, and remove its medium; ``shut`` completes the change.

        Return False if the guest has locked the tray: it is requested to open it, and ``freed``
        reports that.
        """
        drive = {"id": tray_name(volume)}
        mark = f"{_OPENED}{volume}"
        if mark not in await self._marks():
            # A secret is the object with the fewest side effects.
            secret = {"qom-type": "secret", "id": mark, "data": "-"}
            await self._monitor.execute("object-add", secret)
        self._monitor.awaited.add(tray_name(volume))
        await self._monitor.execute("blockdev-open-tray", {**drive, "force": False})
        try:
            await self._monitor.execute("blockdev-remove-medium", drive)
        except MonitorError as error:
            if _IS_SHUT not in str(error):
                raise
            await self._monitor.execute("object-del", {"id": mark})
            return False
        self._monitor.awaited.discard(tray_name(volume))
        return True

    async def _marks(self) -> list[str]:
        listed = await self._monitor.execute("qom-list", {"path": "/objects"})
        return [one["name"] for one in listed if one["name"].startswith(_OPENED)]


def _has_trays(devices: Iterable[str]) -> bool:
    return any(name.startswith(TRAY) for name in devices)
