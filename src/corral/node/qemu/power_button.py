"""The power button: whether a guest handles it, and a reboot by it.

QEMU does not keep a press for a guest that does not handle it.

The button is an event of ACPI's fixed hardware (ACPI 6.5, 4.8.3.1 and table 4.16).  A guest's OS
enables it in the register PM1_EN when it is ready; firmware and boot loaders do not, and a reset
disables it.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from corral import files
from corral.node.hypervisor import GuestError
from corral.node.qemu.monitor import Monitor, MonitorError

_OWNERS = frozenset({"child<ICH9-LPC>", "child<PIIX4_PM>"})
"""The devices of the machine types q35 and pc that have the registers."""
_DEVICES = "/machine/unattached"
_PM1_EN = 2  # from the start of the block of registers
_PWRBTN_EN = 1 << 8
_NOTHING_THERE = 0xFFFF

REBOOT_RECORD = "reboot.json"
REBOOT_SECONDS = 180.0
"""Longest shutdown of a guest for a reboot: KubeVirt's default grace period.

A guest that shuts down later does so for another reason, and stays down.
"""


async def is_enabled(monitor: Monitor) -> bool:
    """Return whether the guest handles the power button; True if that cannot be found out."""
    with suppress(MonitorError, LookupError, ValueError):
        base = await _base(monitor)
        if base == 0:
            return False  # the firmware has not placed the registers yet
        line = f"i/h {base + _PM1_EN:#x}"
        output = await monitor.execute("human-monitor-command", {"command-line": line})
        enabled = int(output.rpartition("=")[2], 16)
        return enabled != _NOTHING_THERE and bool(enabled & _PWRBTN_EN)
    return True


async def _base(monitor: Monitor) -> int:
    """Return the first I/O port of the registers, 0 while there is none.

    Raises MonitorError, and LookupError if the board has no such registers.
    """
    devices = await monitor.execute("qom-list", {"path": _DEVICES})
    names = [one["name"] for one in devices if one["type"] in _OWNERS]
    place = {"path": f"{_DEVICES}/{names[0]}", "property": "pm_io_base"}
    return int(await monitor.execute("qom-get", place))


class RebootRequest(msgspec.Struct, frozen=True):
    """The deadline of a reboot, in seconds since the epoch."""

    until: float


class Reboot:
    """A reboot by the power button, which guests take for a request to shut down.

    The request is recorded in the machine's directory, since another manager may run by the time
    the guest has shut down and is to be started again.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / REBOOT_RECORD

    @property
    def requested(self) -> bool:
        request = files.read_json(self._path, RebootRequest)
        return request is not None and time.time() < request.until

    def request(self) -> None:
        """Record the request, with its deadline.  Raises GuestError."""
        try:
            files.replace(
                self._path, msgspec.json.encode(RebootRequest(time.time() + REBOOT_SECONDS))
            )
        except OSError as error:
            raise GuestError(f"the reboot cannot be recorded: {error}") from error

    def forget(self) -> None:
        """Remove the request: it was carried out, or superseded."""
        with suppress(OSError):
            self._path.unlink()
