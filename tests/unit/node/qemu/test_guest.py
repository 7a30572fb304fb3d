"""What QMP's events mean, and what becomes of a guest that is to start again."""

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change
from corral.node.qemu import guest as guests, power_button
from corral.node.qemu.devices.agent import CHARDEV
from corral.node.qemu.guest import END, QemuGuest, translate
from corral.node.qemu.monitor import MonitorError


@pytest.mark.parametrize(
    ("event", "data", "change"),
    [
        ("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"}, Change.POWERED_OFF),
        ("SHUTDOWN", {"guest": True, "reason": "guest-reset"}, Change.POWERED_OFF),
        ("SHUTDOWN", {"guest": True, "reason": "guest-panic"}, None),
        ("SHUTDOWN", {"guest": False, "reason": "host-signal"}, None),
        ("SHUTDOWN", {"guest": False, "reason": "host-qmp-quit"}, None),
        ("GUEST_PANICKED", {"action": "pause"}, Change.PANICKED),
        ("WATCHDOG", {"action": "reset"}, Change.WATCHDOG_EXPIRED),
        ("WATCHDOG", {"action": "shutdown"}, Change.WATCHDOG_EXPIRED),
        ("WATCHDOG", {"action": "poweroff"}, Change.WATCHDOG_POWERED_OFF),
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
def test_qemu_events_are_translated(event, data, change):
    assert translate({"event": event, "data": data}) is change


SHUTDOWN = {"event": "SHUTDOWN", "data": {"guest": True, "reason": "guest-shutdown"}}
RESET = {"event": "RESET", "data": {"guest": True, "reason": "guest-reset"}}


class Monitor:
    """Records commands; the agent is never there."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.commands = []

    async def execute(self, command):
        if command == "query-chardev":
            raise MonitorError("no agent here")
        self.commands.append(command)

    async def order(self, command):
        self.commands.append(command)

    async def close(self):
        pass


@pytest.fixture
def monitor():
    return Monitor()


@pytest.fixture
def guest(monitor, tmp_path):
    """Makes the guest that a manager finds in a state."""
    process = SimpleNamespace(identity=SimpleNamespace(pid=1), on_end=lambda _: None)
    return lambda state="running": QemuGuest(tmp_path, process, monitor, state)


async def changes(guest, *events):
    for event in (*events, END):
        guest._monitor.events.put_nowait(event)
    return [change async for change in guest.changes() if change is not Change.SYNCED]


async def test_the_present_state_is_told_before_later_changes(guest, monitor):
    async def execute(_command):
        return [{"label": CHARDEV, "frontend-open": True}]

    monitor.execute = execute
    one = guest()
    monitor.events.put_nowait(END)
    assert [change async for change in one.changes()] == [
        Change.RESUMED, Change.AGENT_CONNECTED, Change.SYNCED, Change.GONE,
    ]  # fmt: skip


async def test_a_guest_that_shuts_down_for_a_reboot_is_started_again_once(guest, monitor):
    one = guest()
    await one.reboot()
    assert await changes(one, SHUTDOWN, SHUTDOWN) == [
        Change.RESUMED, Change.REBOOTED, Change.POWERED_OFF, Change.GONE,
    ]  # fmt: skip
    assert monitor.commands == ["system_powerdown", "system_reset", "cont"]


async def test_a_guest_that_ignores_a_reboot_can_shut_down_later(guest, monkeypatch):
    one = guest()
    await one.reboot()
    late = time.time() + power_button.REBOOT_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: late)
    assert Change.POWERED_OFF in await changes(one, SHUTDOWN)


async def test_a_guest_that_rebooted_itself_can_shut_down_later(guest):
    one = guest()
    await one.reboot()
    assert (await changes(one, RESET, SHUTDOWN))[1:3] == [Change.REBOOTED, Change.POWERED_OFF]


async def test_a_stopping_guest_is_not_started_again(guest):
    one = guest()
    await one.reboot()
    await one.power_down()
    assert Change.POWERED_OFF in await changes(one, SHUTDOWN)


@pytest.mark.parametrize(("state", "events"), [("running", [SHUTDOWN]), ("shutdown", [])])
async def test_a_pending_reboot_survives_a_restart_of_the_manager(guest, monitor, state, events):
    await guest().reboot()
    seen = await changes(guest(state), *events)
    assert Change.REBOOTED in seen
    assert Change.POWERED_OFF not in seen
    assert monitor.commands[1:] == ["system_reset", "cont"]


async def test_other_shutdowns_do_not_restart_the_guest(guest):
    assert await changes(guest("shutdown")) == [Change.POWERED_OFF, Change.GONE]


SAMPLE_NANOS = int(guests._SAMPLE_SECONDS * 1e9)


class Waiting:
    """A process that waits for a processor for so much of each of the first samples."""

    ended = False
    identity = SimpleNamespace(pid=1)

    def __init__(self, shares):
        self._shares = shares
        self._waited = 0
        self.looks = 0

    def on_end(self, _):
        pass

    def cpu_nanos(self):
        return 10**9 + self.looks * SAMPLE_NANOS // 30

    def waited_nanos(self):
        share = self._shares[self.looks] if self.looks < len(self._shares) else 0.1
        self._waited += int(share * SAMPLE_NANOS)
        self.looks += 1
        return {"7": 0, "8": self._waited}


@pytest.mark.parametrize(
    ("shares", "looks"),
    [
        pytest.param([0], 7, id="it rests"),
        pytest.param([0.4] * 7, 7, id="it rests and ticks on a busy host"),
        pytest.param([0, *[0.95] * 40], 47, id="others have the processors"),
        pytest.param([0, 0.1, 0.1, 0.95], 10, id="others have them for a while"),
    ],
)
async def test_a_guest_that_waits_for_cpu_has_not_booted(
    monitor, tmp_path, monkeypatch, shares, looks
):
    monkeypatch.setattr(guests, "_SAMPLE_SECONDS", 0)
    waiting = Waiting(shares)
    await QemuGuest(tmp_path, waiting, monitor, "running").booted(1)
    assert waiting.looks == looks


OPEN = {"event": "VSERPORT_CHANGE", "data": {"id": "agent0", "open": True}}
CLOSED = {"event": "VSERPORT_CHANGE", "data": {"id": "agent0", "open": False}}


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("events", "reported"),
    [
        ([CLOSED, 6], [Change.AGENT_DISCONNECTED]),
        ([CLOSED, CLOSED, 6], [Change.AGENT_DISCONNECTED]),
        ([CLOSED, 1, OPEN, 6], [Change.AGENT_CONNECTED]),
        ([CLOSED, 3, OPEN, CLOSED, 3, OPEN, 6], [Change.AGENT_CONNECTED] * 2),
        ([CLOSED, 1, RESET, 6], [Change.REBOOTED]),
        ([CLOSED, 6, OPEN, CLOSED, 6], [
            Change.AGENT_DISCONNECTED, Change.AGENT_CONNECTED, Change.AGENT_DISCONNECTED,
        ]),
    ],
)  # fmt: skip
async def test_a_short_disconnect_of_the_agent_is_ignored(guest, monitor, events, reported):
    """Numbers are seconds that pass."""

    async def happen():
        for one in (*events, END):
            if isinstance(one, int):
                await asyncio.sleep(one)
            else:
                monitor.events.put_nowait(one)

    async with asyncio.TaskGroup() as group:
        group.create_task(happen())
        seen = [change async for change in guest().changes()]
    assert seen == [Change.RESUMED, Change.SYNCED, *reported, Change.GONE]


async def test_a_replug_sets_the_link_down_then_up(tmp_path, monkeypatch):
    monkeypatch.setattr("corral.node.qemu.guest._UNPLUGGED_SECONDS", 0)
    links = []

    class Links(Monitor):
        async def execute(self, command, arguments):
            links.append((command, arguments["name"], arguments["up"]))

    cards = [{"name": "default", "bridge": {}}]
    document = {"spec": {"domain": {"devices": {"interfaces": cards}}}}
    process = SimpleNamespace(identity=SimpleNamespace(pid=1), on_end=lambda _: None)
    one = QemuGuest(tmp_path, process, Links(), "running")
    await one.replug(msgspec.convert(document, VirtualMachineInstance))
    assert links == [("set_link", "nic0", False), ("set_link", "nic0", True)]
