"""A guest in QEMU (``corral.node.hypervisor.Guest``)."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.counters import Counters, MigrationCounters
from corral.node.host.process import Process, Pulse
from corral.node.hypervisor import (
    Change,
    GuestError,
    GuestInfo,
    Memory,
    Outgoing,
    StuckError,
    Usage,
)
from corral.node.qemu import live_migration, migration_file as memories, power_button
from corral.node.qemu.counters import count
from corral.node.qemu.devices.agent import CHARDEV
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.devices.interfaces import bridged
from corral.node.qemu.guest_agent import AgentError, AgentLink, QemuAgent
from corral.node.qemu.live_migration import SourceMigration
from corral.node.qemu.monitor import Event, Monitor, MonitorError
from corral.node.qemu.plugs import QemuPlugs
from corral.node.qemu.power_button import Reboot
from corral.node.qemu.resizing import QemuResizing
from corral.node.qemu.sockets import connect
from corral.node.streams import StreamLine

MONITOR = "monitor.sock"
SERIAL = "serial.sock"
AGENT = "agent.sock"
_SCREEN = "screen"  # the name of a descriptor on its way to QEMU

_CHANGES = {
    "RESUME": Change.RESUMED,
    "RESET": Change.REBOOTED,
    "GUEST_PANICKED": Change.PANICKED,
    "SHUTDOWN": Change.POWERED_OFF,
    "STOP": Change.PAUSED,
}
# The state in which QEMU is found when its events were missed, as no manager ran.
_STATES = {
    "running": Change.RESUMED,
    "shutdown": Change.POWERED_OFF,
    "guest-panicked": Change.PANICKED,
    "paused": Change.PAUSED,
    "postmigrate": Change.PAUSED,
    "io-error": Change.PAUSED_BY_IO_ERROR,
}
END: Event = {"event": "END"}  # not QEMU's: its process has ended
SILENCE: Event = {"event": "SILENCE"}  # not QEMU's: its monitor connection has closed
FLUSH_SECONDS = 5.0
_RECEIVED = "received"  # not a state of QEMU's
_LOW_PRIORITY_NICE = 15  # niceness: a thirtieth of the share of the others
_IDLE_SAMPLES = 6
_SAMPLE_SECONDS = 0.25
_IDLE_NANOS = _SAMPLE_SECONDS * 0.25e9  # a quarter of its CPU limit: a boot uses more
_STARVED_NANOS = _SAMPLE_SECONDS * 0.5e9  # a vCPU that waits so long for a CPU is not idle
_UNPLUGGED_SECONDS = 1.0  # Linux checks its links once a second


class QemuGuest:
    """A QEMU process, and the connection to its monitor."""

    def __init__(self, directory: Path, process: Process, monitor: Monitor, state: str) -> None:
        self._directory = directory
        self._process = process
        self._monitor = monitor
        self._state = state
        self._reboot = Reboot(directory)
        self._saving = False
        self._saves: asyncio.Queue[str] = asyncio.Queue()
        self._offers = False
        self._link = AgentLink(monitor.events)
        self.agent = QemuAgent(directory / AGENT)
        self.plugs = QemuPlugs(monitor)
        self.resizing = QemuResizing(monitor)
        self._migration = SourceMigration(monitor, process.identity.pid)
        process.on_end(lambda: monitor.events.put_nowait(END))

    @property
    def halted(self) -> bool:
        """True if its vCPUs have never run."""
        return self._state in {"prelaunch", "preconfig"}

    @property
    def pid(self) -> int:
        return self._process.identity.pid

    def usage(self) -> Usage | None:
        """Return the CPU time of all threads of QEMU, and its resident set."""
        try:
            return Usage(self._process.cpu_nanos(), self._process.resident_bytes())
        except ProcessLookupError:
            return None

    def ran_nanos(self) -> int:
        """Return the CPU time of the main thread, which answers the monitor; vCPUs have others."""
        return self._process.ran_nanos()

    def pulse(self) -> Pulse | None:
        return self._process.pulse()

    async def ping(self, seconds: float) -> None:
        await self._monitor.execute("query-status", seconds=seconds)

    async def counters(self, vmi: VirtualMachineInstance) -> Counters:
        return await count(self._monitor, self.pid, vmi)

    async def changes(self) -> AsyncIterator[Change]:
        """Iterate over changes: the present state, SYNCED, and others; LOST or GONE is the last."""
        if (change := await self._rebooted(_STATES.get(self._state))) is not None:
            yield change
        if (is_open := await self._agent_is_open()) is not None:
            yield Change.AGENT_CONNECTED if is_open else Change.AGENT_DISCONNECTED
        yield Change.SYNCED
        while (event := await self._monitor.events.get()) not in (END, SILENCE):
            self.plugs.on_event(event)
            self.resizing.on_event(event)
            self._migration.on_event(event)
            if self._is_save_event(event) or self._is_migration_event(event):
                continue
            change = self._link.debounce(event, translate(event))
            if (change := await self._rebooted(change)) is not None:
                yield change
        self._migration.on_event(END)
        self.agent.close()
        await self._monitor.close()
        yield Change.GONE if event is END else Change.LOST

    async def watch(self) -> None:
        """Report when the monitor's connection closes although QEMU runs."""
        await self._monitor.hung_up()
        if not await self._process.is_ending():
            self._monitor.events.put_nowait(SILENCE)

    async def _agent_is_open(self) -> bool | None:
        with suppress(MonitorError):
            devices = await self._monitor.execute("query-chardev")
            return any(one["label"] == CHARDEV and one["frontend-open"] for one in devices)
        return None

    async def resume(self) -> None:
        """Run the guest.  Raises MonitorError."""
        await self._monitor.order("cont")
        self._state = "resumed"  # the change is reported by QEMU's event

    async def pause(self) -> None:
        await self._monitor.order("stop")

    async def runs(self) -> bool:
        status = await self._monitor.execute("query-status")
        return bool(status["running"])

    async def save(self, descriptor: int) -> None:
        """Stop and save the guest; STOP and RESUME are not reported until it is resumed."""
        self._saving = True
        await memories.stop(self._monitor)
        await memories.save(self._monitor, descriptor, self._saves)

    async def cancel_save(self) -> None:
        """Cancel a save, also an earlier manager's: QEMU would complete it and stop the guest.

        ``changes`` has to be iterated over meanwhile.
        """
        await memories.cancel(self._monitor, self._saves)

    def _is_save_event(self, event: Event) -> bool:
        """Report whether an event is a side effect of a save, and not reported."""
        if (end := memories.ended(event)) is not None:
            self._saves.put_nowait(end)
        is_hidden = self._saving and event["event"] in {"STOP", "RESUME"}
        if event["event"] == "RESUME":
            self._saving = False
        return is_hidden

    async def send(self, vmi: VirtualMachineInstance, outgoing: Outgoing) -> None:
        """Send the guest; STOP and RESUME are not reported until it stays.  Raises GuestError."""
        await self._migration.send(vmi, outgoing)

    async def stay(self) -> None:
        await self._migration.stay()

    async def migration_counters(self) -> MigrationCounters | None:
        return await self._migration.counters()

    @property
    def stopped_at(self) -> float:
        return self._migration.stopped_at

    def _is_migration_event(self, event: Event) -> bool:
        """Report whether an event is a side effect of a migration, and not reported."""
        return self._migration.is_active and event["event"] in {"STOP", "RESUME"}

    async def offer_disks(self, vmi: VirtualMachineInstance, disks: Sequence[str]) -> None:
        nodes = [node_of(vmi, volume) for volume in disks]
        await live_migration.offer_disks(self._monitor, self._directory, nodes)
        self._offers = bool(nodes)

    async def open_disks(self) -> socket.socket:
        try:
            return connect(self._directory / live_migration.DISKS)
        except OSError as error:
            raise GuestError(f"the disks cannot be reached: {describe(error)}") from error

    async def receive(self, memory: socket.socket, sender: socket.socket | None = None) -> None:
        await live_migration.receive(self._monitor, memory, sender, offers=self._offers)
        self._state = _RECEIVED

    @property
    def received(self) -> bool:
        """Report whether its guest is stopped; QEMU's state is ``inmigrate`` until then."""
        return self._state in {_RECEIVED, "paused"}

    async def load(self, memory: Memory) -> None:
        """Load a saved memory: the guest resumes from there with ``resume``.

        Raises MemoryMisfitError and MonitorError.
        """
        await memories.load(self._monitor, memory.file, await self.shape(), memory.shape)
        self._state = "loaded"

    async def replug(self, vmi: VirtualMachineInstance) -> None:
        cards = bridged(vmi)
        for card in cards:
            await self._monitor.execute("set_link", {"name": card, "up": False})
        if cards:
            await asyncio.sleep(_UNPLUGGED_SECONDS)
        for card in cards:
            await self._monitor.execute("set_link", {"name": card, "up": True})

    async def shape(self) -> tuple[str, ...]:
        return await memories.shape(self._monitor, self.pid)

    async def reset(self) -> None:
        await self._monitor.order("system_reset")

    async def reboot(self) -> None:
        """Reboot by the agent, else press the power button and start it again (``_rebooted``)."""
        if await self._agent_is_open():
            with suppress(AgentError):
                await self.agent.reboot()
                return
        self._reboot.request()
        try:
            await self._monitor.order("system_powerdown")
        except MonitorError:
            self._reboot.forget()
            raise

    async def _rebooted(self, change: Change | None) -> Change | None:
        """Turn the end of a guest into a reboot while one is requested: reset and resume it."""
        if change is Change.POWERED_OFF and self._reboot.requested:
            await self.reset()
            await self.resume()
            change = Change.REBOOTED
        if change is Change.REBOOTED:  # perhaps by itself: a guest may reboot on the button
            self._reboot.forget()
        return change

    def lower_priority(self, low: bool) -> None:  # noqa: FBT001 - a switch
        """Set the niceness, if root: only root may lower that of another user's process again."""
        if os.geteuid() == 0:
            self._process.renice(_LOW_PRIORITY_NICE if low else 0)

    async def booted(self, processors: float) -> None:
        """Wait until the guest has booted, that is, its vCPUs are idle, or has ended.

        Observed from outside, since most guests report nothing; only during a boot.  A guest that
        uses little CPU because others have it still boots: its vCPUs wait for a CPU nearly all the
        time.
        """
        idle = 0
        with suppress(ProcessLookupError):
            little = _IDLE_NANOS * min(processors, 1.0)
            before, waited = self._process.cpu_nanos(), self._process.waited_nanos()
            while idle < _IDLE_SAMPLES and not self._process.ended:
                await asyncio.sleep(_SAMPLE_SECONDS)
                now, waits = self._process.cpu_nanos(), self._process.waited_nanos()
                longest = max((long - waited.get(one, 0) for one, long in waits.items()), default=0)
                rests = now - before < little and longest < _STARVED_NANOS
                idle = idle + 1 if rests else 0
                before, waited = now, waits

    async def io_errors(self, vmi: VirtualMachineInstance) -> Mapping[str, bool]:
        names = [disk.name for disk in vmi.spec.domain.devices.disks]
        volumes = {node_of(vmi, name): name for name in names}
        return {
            volumes[node]: block["io-status"] == "nospace"
            for block in await self._monitor.execute("query-block")
            if block.get("io-status", "ok") != "ok"
            and (node := block.get("inserted", {}).get("node-name")) in volumes
        }

    async def grow(self, vmi: VirtualMachineInstance, volume: str, size: int) -> None:
        node = node_of(vmi, volume)
        await self._monitor.execute("block_resize", {"node-name": node, "size": size})

    async def listens_to_power_button(self) -> bool:
        return await power_button.is_enabled(self._monitor)

    async def power_down(self) -> None:
        """Press the power button; a guest that ends meanwhile is fine."""
        self._reboot.forget()
        with suppress(MonitorError):
            await self._monitor.execute("system_powerdown")

    async def destroy(self) -> None:
        """Kill QEMU, and wait for its end.  Raises StuckError."""
        await kill(self._process)

    async def query_guest_info(self) -> GuestInfo | None:
        return await self.agent.query_guest_info()

    async def console(self) -> StreamLine:
        try:
            return StreamLine(connect(self._directory / SERIAL))
        except OSError as error:
            raise GuestError(f"the serial console cannot be opened: {describe(error)}") from error

    async def screen(self) -> StreamLine:
        """Hand QEMU one end of a socket pair, so that nothing has to listen."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._monitor.lend(theirs.fileno(), "getfd", {"fdname": _SCREEN})
                client = {"protocol": "vnc", "fdname": _SCREEN, "skipauth": True}
                await self._monitor.execute("add_client", client)
            return StreamLine(ours)
        except BaseException:
            ours.close()
            raise

    async def screenshot(self, *, move_cursor: bool = False) -> bytes:
        if move_cursor:
            step = {"type": "rel", "data": {"axis": "x", "value": 1}}
            await self._monitor.execute("input-send-event", {"events": [step]})
        with ExitStack() as stack:
            picture = _closing(stack, os.memfd_create("screenshot"))
            # QEMU refuses a descriptor that is open for reading, too
            canvas = _closing(stack, os.open(f"/proc/self/fd/{picture}", os.O_WRONLY))
            lent = await self._monitor.lend(canvas, "add-fd", {})
            try:
                place = f"/dev/fdset/{lent['fdset-id']}"
                await self._monitor.execute("screendump", {"filename": place, "format": "png"})
            finally:
                await self._monitor.execute("remove-fd", {"fdset-id": lent["fdset-id"]})
            return os.pread(picture, os.fstat(picture).st_size, 0)

    async def release(self) -> None:
        self.agent.close()
        await self._monitor.close()
        self._process.release()


async def kill(process: Process) -> None:
    """Terminate a QEMU process, then kill it, and wait for its end.  Raises StuckError.

    It gets a moment to end by itself: it may hold metadata of a disk image that is not written yet.
    """
    process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await process.wait()
    if not await process.end():
        raise StuckError(
            f"QEMU (process {process.identity.pid}) was killed and does not end: it waits in the"
            " kernel, perhaps for a disk that does not answer"
        )


def _closing(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def translate(event: Event) -> Change | None:
    """Return the change that a QMP event means; None for others."""
    data = event.get("data", {})
    match event["event"]:
        case "VSERPORT_CHANGE" if data.get("id") == CHARDEV:
            return Change.AGENT_CONNECTED if data.get("open") else Change.AGENT_DISCONNECTED
        case "BLOCK_IO_ERROR" if data.get("action") == "stop":
            return Change.PAUSED_BY_IO_ERROR
        case "WATCHDOG":
            return (
                Change.WATCHDOG_POWERED_OFF
                if data.get("action") == "poweroff"
                else Change.WATCHDOG_EXPIRED
            )
        case "SHUTDOWN" if not data.get("guest") or data.get("reason") == "guest-panic":
            return None  # QEMU was killed: GONE follows; or GUEST_PANICKED came before
        case name:
            return _CHANGES.get(name)
