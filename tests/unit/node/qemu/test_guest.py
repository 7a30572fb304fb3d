"""What QMP's events mean."""

import pytest

from corral.node.hypervisor import Change
from corral.node.qemu.guest import translate


@pytest.mark.parametrize(
    ("event", "data", "change"),
    [
        ("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"}, Change.POWERED_OFF),
        ("SHUTDOWN", {"guest": True, "reason": "guest-reset"}, Change.POWERED_OFF),
        ("SHUTDOWN", {"guest": True, "reason": "guest-panic"}, None),
        ("SHUTDOWN", {"guest": False, "reason": "host-signal"}, None),
        ("SHUTDOWN", {"guest": False, "reason": "host-qmp-quit"}, None),
        ("GUEST_PANICKED", {"action": "pause"}, Change.PANICKED),
        ("RESET", {"guest": True, "reason": "guest-reset"}, Change.REBOOTED),
        ("STOP", {}, Change.PAUSED),
        ("RESUME", {}, Change.RESUMED),
        ("BLOCK_IO_ERROR", {"action": "stop"}, Change.PAUSED_BY_IO_ERROR),
        ("BLOCK_IO_ERROR", {"action": "report"}, None),
        ("VSERPORT_CHANGE", {"id": "agent0", "open": True}, Change.AGENT_CONNECTED),
        ("VSERPORT_CHANGE", {"id": "agent0", "open": False}, Change.AGENT_DISCONNECTED),
        ("VSERPORT_CHANGE", {"id": "another", "open": True}, None),
        ("RTC_CHANGE", {"offset": 3}, None),
    ],
)
def test_events_are_translated(event, data, change):
    assert translate({"event": event, "data": data}) is change
