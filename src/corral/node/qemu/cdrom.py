"""The CD-ROM drives of a QEMU that runs, and what is put into them and taken out.

A medium is changed while the drive is open, in several commands.  An object that QEMU keeps marks
a drive that was opened here: where a manager is killed in between, the next one shuts it.  A drive
that the guest opened stays open.  (Descriptors that nothing uses go with the manager's connection.)
"""

from collections.abc import Iterable, Mapping

from corral.node.hypervisor import GuestError
from corral.node.qemu.devices.plugs import TRAY, tray_name
from corral.node.qemu.monitor import TRAY_MOVED, Event, Monitor, MonitorError, device_id

_OPENED = "opened-"
"""How marks are called; the volume follows."""
_IS_SHUT = "is not open"
"""What QEMU's complaint has in it where the guest has locked the drive: it is asked to open it."""


class Trays:
    """The drives of one guest whose media come and go, by the names of their volumes."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def freed(self, event: Event) -> str | None:
        """The volume whose drive the guest opens, as it was asked to; None for other news."""
        if event["event"] != TRAY_MOVED:
            return None
        return device_id(event["data"]["id"]).removeprefix(TRAY)

    async def media(self, devices: Iterable[str]) -> Mapping[str, str]:
        """The topmost block node of the medium in each drive that has one, by device."""
        if not _has_trays(devices):
            return {}
        return {
            device: block["inserted"]["node-name"]
            for block in await self._monitor.execute("query-block")
            if (device := device_id(block.get("qdev", ""))).startswith(TRAY) and "inserted" in block
        }

    async def shut(self, devices: Iterable[str]) -> None:
        """Shut the drives that were opened here."""
        if not _has_trays(devices):
            return
        for mark in await self._marks():
            drive = {"id": tray_name(mark.removeprefix(_OPENED))}
            await self._monitor.execute("blockdev-close-tray", drive)
            await self._monitor.execute("object-del", {"id": mark})

    async def load(self, volume: str, node: str) -> None:
        """Put a medium into a drive, in place of the one that is there; ``shut`` ends it."""
        if not await self.empty(volume):
            raise GuestError("the guest keeps its drive shut")
        medium = {"id": tray_name(volume), "node-name": node}
        await self._monitor.execute("blockdev-insert-medium", medium)

    async def empty(self, volume: str) -> bool:
        """Open a drive, and take out what is in it; ``shut`` ends it.

        False where the guest has locked the drive: it is asked to open it, and ``freed`` tells.
        """
        drive = {"id": tray_name(volume)}
        mark = f"{_OPENED}{volume}"
        if mark not in await self._marks():
            # Of all that QEMU has of this kind a secret does the least.
            wanted = {"qom-type": "secret", "id": mark, "data": "-"}
            await self._monitor.execute("object-add", wanted)
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
