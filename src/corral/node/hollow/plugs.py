"""Hotplugged disks of hollow machines: a file of names in the machine's directory."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from corral import files
from corral.api.kinds.vmi.hotplug import HotplugDisk, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Drive

_RECORD = "plugs.json"


class HollowPlugs:
    """The disks of one hollow guest, which releases them at once unless it is ``stubborn``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listener: Callable[[str], None] = lambda _volume: None
        self._requested: dict[str, str] = {}
        self.stubborn = False

    def plug_initial(self, vmi: VirtualMachineInstance) -> None:
        """Plug the disks in that the guest starts with."""
        if plugs := hotplug_disks(vmi.spec):
            self._write({name: plug.claim for name, plug in plugs.items()})

    def on_released(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    async def recover(self) -> Mapping[str, str]:
        return self._read()

    async def plug(
        self,
        vmi: VirtualMachineInstance,  # noqa: ARG002
        plug: HotplugDisk,
        drives: Mapping[str, Drive],  # noqa: ARG002
    ) -> None:
        self._write(self._read() | {plug.disk.name: plug.claim})

    async def unplug(self, volume: str, claim: str) -> None:
        self._requested[volume] = claim
        if not self.stubborn:
            self.release_requested()

    def release_requested(self) -> None:
        """Release the disks that the guest was requested to."""
        left = {name: claim for name, claim in self._read().items() if name not in self._requested}
        gone, self._requested = self._requested, {}
        self._write(left)
        for volume in gone:
            self._listener(volume)

    def _read(self) -> dict[str, str]:
        return files.read_json(self._directory / _RECORD, dict[str, str]) or {}

    def _write(self, claims: Mapping[str, str]) -> None:
        files.replace(self._directory / _RECORD, msgspec.json.encode(claims))
