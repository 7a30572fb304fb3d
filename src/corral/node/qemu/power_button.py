"""Whether a guest listens to its power button: QEMU keeps no press for one that does not.

The button is an event of ACPI's fixed hardware (ACPI 6.5, 4.8.3.1 and table 4.16).  A guest's
system enables it in the register PM1_EN when it is ready for it; firmware and boot loaders do not,
and a reset disables it.
"""

from contextlib import suppress

from corral.node.qemu.monitor import Monitor, MonitorError

_OWNERS = frozenset({"child<ICH9-LPC>", "child<PIIX4_PM>"})
"""The devices of q35 and pc that have the registers."""
_DEVICES = "/machine/unattached"
_PM1_EN = 2  # from the start of the block of registers
_PWRBTN_EN = 1 << 8
_NOTHING_THERE = 0xFFFF


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
