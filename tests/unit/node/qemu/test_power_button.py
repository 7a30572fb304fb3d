"""The register that enables a guest's power button, in the output of QEMU 7.2."""

import pytest

from corral.node.qemu.monitor import MonitorError
from corral.node.qemu.power_button import is_enabled


class Monitor:
    """A machine whose registers begin at a port, and what the one at 2 from there holds."""

    def __init__(self, base=0x600, enabled="portw[0x0602] = 0x0120", board="ICH9-LPC"):
        self.answers = {
            "qom-list": [
                {"name": "device[1]", "type": "child<mch>"},
                {"name": "device[2]", "type": f"child<{board}>"},
            ],
            "qom-get": base,
            "human-monitor-command": f"{enabled}\r\n",
        }
        self.commands = []

    async def execute(self, command, arguments):
        self.commands.append((command, *arguments.values()))
        if command not in self.answers:
            raise MonitorError(f"{command}: it hangs")
        return self.answers[command]


async def test_the_acpi_register_is_read_at_the_address_of_the_firmware():
    monitor = Monitor(0xB000, "portw[0xb002] = 0x0120", "PIIX4_PM")
    assert await is_enabled(monitor)
    assert monitor.commands == [
        ("qom-list", "/machine/unattached"),
        ("qom-get", "/machine/unattached/device[2]", "pm_io_base"),
        ("human-monitor-command", "i/h 0xb002"),
    ]


@pytest.mark.parametrize(
    ("base", "enabled", "heard"),
    [
        (0x600, "portw[0x0602] = 0x0100", True),
        (0x600, "portw[0x0602] = 0x0020", False),  # Linux has found ACPI, but not the button
        (0x600, "portw[0x0602] = 0x0000", False),
        (0x600, "portw[0x0602] = 0xffff", False),  # nothing is at that port
        (0, "portw[0x0002] = 0x0120", False),
        (0x600, "unknown command: 'i/h'", True),  # unknown: it is pressed, and waited for
    ],
)
async def test_only_a_guest_that_enabled_the_power_button_reacts(base, enabled, heard):
    assert await is_enabled(Monitor(base, enabled)) is heard


async def test_an_unreadable_register_leaves_the_guest_its_grace_period():
    assert await is_enabled(Monitor(board="virt"))
    monitor = Monitor()
    monitor.answers.clear()
    assert await is_enabled(monitor)
