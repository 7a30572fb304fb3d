"""The size of hollow machines: a file in the machine's directory, of those with room for more."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from corral import files
from corral.api.kinds.vmi.live_update import (
    boot_memory,
    current_memory,
    has_room,
    present_processors,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import GuestError, GuestSize

_RECORD = "size.json"


def initial_size(vmi: VirtualMachineInstance) -> GuestSize | None:
    """Return the size of a new guest, or of one that moves; None if it has no room for more."""
    if not has_room(vmi):
        return None
    boot = boot_memory(vmi).rounded_up()
    plugged = current_memory(vmi).rounded_up() - boot
    return GuestSize(present_processors(vmi).total, boot, plugged, plugged)


class HollowResizing:
    """The size of one hollow guest, which takes memory at once unless it is ``stubborn``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _RECORD
        self._listener: Callable[[], None] = lambda: None
        self.stubborn = False
        """True if it ignores memory that is plugged in; set by tests."""
        self.fault = ""
        """The error of each request; set by tests."""

    def set_initial(self, size: GuestSize | None) -> None:
        """Set the size of a new guest, if it has room for more."""
        if size is not None:
            self._write(size)

    def on_changed(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    async def query(self) -> GuestSize:
        size = files.read_json(self._path, GuestSize)
        if size is None:
            raise GuestError("the size of the hollow machine is not known")
        return size

    async def plug_processors(self, count: int) -> None:
        self._check()
        self._write((await self.query())._replace(processors=count))

    async def request_memory(self, plugged_bytes: int) -> None:
        self._check()
        self._write((await self.query())._replace(requested_bytes=plugged_bytes))
        if not self.stubborn:
            await self.comply()

    async def comply(self) -> None:
        """Take or release the memory that was requested."""
        size = await self.query()
        self._write(size._replace(plugged_bytes=size.requested_bytes))
        self._listener()

    def _check(self) -> None:
        if self.fault:
            raise GuestError(self.fault)

    def _write(self, size: GuestSize) -> None:
        files.replace(self._path, msgspec.json.encode(size))
