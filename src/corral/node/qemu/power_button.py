"""The power button: whether a guest listens to it, and a reboot by it.

QEMU keeps no press for a guest that does not listen.

The button is an event of ACPI's fixed hardware (ACPI 6.5, 4.8.3.1 and table 4.16).  A guest's
system enables it in the register PM1_EN when it is ready for it; firmware and boot loaders do not,
and a reset disables it.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from corral import files
from corral.node.hypervisor import GuestError
from corral.node.qemu.monitor import Monitor, MonitorError

_OWNERS = frozenset({"child<ICH9-LPC>", "child<PIIX4_PM>"})
"""The devices of q35 and pc that have the registers."""
_DEVICES = "/machine/unattached"
_PM1_EN = 2  # from the start of the block of registers
_PWRBTN_EN = 1 << 8
_NOTHING_THERE = 0xFFFF

REBOOT_NOTE = "reboot.json"
REBOOT_SECONDS = 180.0
"""How long a guest may take to shut down: what KubeVirt grants by default where it is to end.

Who shuts down later does so of its own accord, and stays down.
"""


async def is_heard(monitor: Monitor) -> bool:
    """True also where that cannot be found out."""
    with suppress(MonitorError, LookupError, ValueError):
        base = await _base(monitor)
        if base == 0:
            return False  # the firmware has not placed the registers yet
        line = f"i/h {base + _PM1_EN:#x}"
        told = await monitor.execute("human-monitor-command", {"command-line": line})
        enabled = int(told.rpartition("=")[2], 16)
        return enabled != _NOTHING_THERE and bool(enabled & _PWRBTN_EN)
    return True


async def _base(monitor: Monitor) -> int:
    """The port at which the registers begin, 0 while there is none.

    Raises MonitorError, and LookupError where the board has no such registers.
    """
    devices = await monitor.execute("qom-list", {"path": _DEVICES})
    names = [one["name"] for one in devices if one["type"] in _OWNERS]
    place = {"path": f"{_DEVICES}/{names[0]}", "property": "pm_io_base"}
    return int(await monitor.execute("qom-get", place))


class RebootNote(msgspec.Struct, frozen=True):
    """Until when, in seconds of the epoch."""

    until: float


class Reboot:
    """A reboot by the power button, which every guest takes for a request to shut down.

    That the guest is to start again is noted in its machine's directory: the manager may be another
    one by the time it has shut down.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / REBOOT_NOTE

    @property
    def awaited(self) -> bool:
        note = files.read_json(self._path, RebootNote)
        return note is not None and time.time() < note.until

    def wish(self) -> None:
        """From now on, for so long.  Raises GuestError."""
        try:
            files.replace(self._path, msgspec.json.encode(RebootNote(time.time() + REBOOT_SECONDS)))
        except OSError as error:
            raise GuestError(f"the reboot cannot be noted: {error}") from error

    def forget(self) -> None:
        """It has been done, or something else has come of it."""
        with suppress(OSError):
            self._path.unlink()
