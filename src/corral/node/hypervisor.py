"""The interface between the life of a machine and what runs it: QEMU, or a simulation.

``corral.node.machine.lifecycle`` drives a machine through this interface only.  Guests report
``Change`` events as a stream; nothing is polled.
"""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

from corral.api.kinds.vmi.hotplug import HotplugDisk
from corral.api.kinds.vmi.migration_configuration import MAX_DOWNTIME_MS
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.node.counters import Counters, MigrationCounters
from corral.node.host.process import Pulse
from corral.node.streams import StreamLine

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Change(Enum):
    """An event of a guest, as its hypervisor reports it."""

    SYNCED = "synced"  # the changes before it are the present state, others come as they happen
    AGENT_CONNECTED = "agent-connected"
    AGENT_DISCONNECTED = "agent-disconnected"
    PAUSED = "paused"
    PAUSED_BY_IO_ERROR = "paused-by-io-error"
    RESUMED = "resumed"
    REBOOTED = "rebooted"
    POWERED_OFF = "powered-off"  # the guest shut down by itself, or on the power button
    PANICKED = "panicked"
    WATCHDOG_EXPIRED = "watchdog-expired"  # its action follows, as an event of its own
    WATCHDOG_POWERED_OFF = "watchdog-powered-off"  # by the watchdog's action
    LOST = "lost"  # the last event: the guest runs, but its monitor is gone; find it again
    GONE = "gone"  # the last event: the process has ended


LAST = frozenset({Change.LOST, Change.GONE})


class Layer(NamedTuple):
    """A backing file below an overlay, opened read-only.  The format is raw or qcow2."""

    path: Path
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """The file behind one disk of a machine, and its backing files (``layers``), nearest first.

    ``volume``: the name of the volume.  ``format``: ``raw`` or ``qcow2``; never probed, since a
    guest could write a header of another format.  ``read_only`` files (those of a CD-ROM too) are
    opened so that even a guest that broke out of its QEMU cannot write them.  ``ephemeral`` content
    may be lost when the host goes down, so it is not flushed.  ``direct``: whether the file system
    supports O_DIRECT.  ``lease``: the handle of a volume on a shared directory, whose lease a
    machine needs; ``shares``: whether it shares that with others.
    """

    volume: str
    path: Path
    format: str = "qcow2"
    read_only: bool = False
    layers: tuple[Layer, ...] = ()
    ephemeral: bool = True
    direct: bool = False
    lease: str = ""
    shares: bool = False

    def files(self) -> Iterator[tuple[Path, int]]:
        """Iterate over the file and its layers, each with the flags to open it with."""
        yield self.path, os.O_RDONLY if self.read_only else os.O_RDWR
        for layer in self.layers:
            yield layer.path, os.O_RDONLY


class Network(Protocol):
    """The network of a machine; it lasts as long as the processes that were started in it."""

    @property
    def taps(self) -> Mapping[str, int]:
        """File descriptors of the host's ends of the interfaces, by interface name."""

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread inside the network's namespace; its children stay there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The saved memory of a guest in a file, and the ``shape`` of the machine that it came from."""

    file: Path
    shape: tuple[str, ...]


class Launcher(NamedTuple):
    """The environment in which a machine is started.

    version: of the hypervisor and of how it is started, as the VMI's status has it.
    machine_type: the type of the emulated machine, without alias, such as ``pc-q35-7.2``.
    """

    version: str
    machine_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A machine to start: its VMI, the files of its volumes, and its own directory.

    Without a ``network`` its interfaces use the hypervisor's user network; with a ``memory`` its
    guest resumes from there instead of booting; one that ``receives`` gets its guest from another
    machine (``Guest.receive``), whose ``machine_type`` it has.  With ``pages``, a descriptor of a
    file that cannot be changed, its guest copies each page of it that it writes to, and shares the
    others with all guests of that file; its ``memory`` then lacks what is there.
    """

    vmi: VirtualMachineInstance
    directory: Path
    drives: Mapping[str, Drive] = field(default_factory=dict)
    network: Network | None = None
    memory: Memory | None = None
    receives: bool = False
    machine_type: str = ""
    pages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """The settings of a live migration: KubeVirt's migrationConfiguration.

    bandwidth: bytes a second, 0 for no limit.
    progress_seconds: after which it fails if it makes no progress, 0 for no limit.
    completion_seconds_per_gib: of memory and copied disks, after which it fails; 0 for no limit.
    auto_converge: whether the guest may be slowed down.
    max_downtime_ms: milliseconds for which the guest may stand still at the switch-over.
    """

    bandwidth: int = 0
    progress_seconds: float = 0.0
    completion_seconds_per_gib: float = 0.0
    auto_converge: bool = False
    max_downtime_ms: int = MAX_DOWNTIME_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The destination of a guest that migrates.

    memory: a stream to the other hypervisor.
    disks: volumes whose disks are copied.
    open_disk: opens a stream to such a disk there.
    stopped: called when the guest stands still, and the rest of it is sent.
    """

    memory: socket.socket
    disks: Sequence[str] = ()
    open_disk: Callable[[str], Awaitable[socket.socket]]
    stopped: Callable[[], None] = lambda: None
    options: MigrationOptions = MigrationOptions()


class Usage(NamedTuple):
    """Resource usage of a guest: CPU time since its start, and the memory that it holds now."""

    cpu_nanos: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestInterface:
    """A network interface as the guest itself reports it."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestInfo:
    """Guest information as its agent reports it; ``os`` is KubeVirt's guestOSInfo."""

    os: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    interfaces: Sequence[GuestInterface] = ()


class StartError(Exception):
    """A machine could not be started: a reason for conditions, a message, and a hint what to do.

    busy: the volume whose disk another machine has locked, where that is the cause.
    lasting: whether a retry is pointless until something changes.
    """

    def __init__(
        self, reason: str, message: str, hint: str = "", *, busy: str = "", lasting: bool = False
    ) -> None:
        super().__init__(message)
        self.lasting = lasting
        self.busy = busy
        self.reason = reason
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class GuestError(Exception):
    """A guest cannot do what was requested, or its hypervisor does not answer."""


class NoMachineError(GuestError):
    """No machine of this host has the disk in question."""


class NoAnswerError(GuestError):
    """The hypervisor process does not answer in time: it hangs, or is slow."""


class HungError(GuestError):
    """The hypervisor process is unreachable: it does not run on, or does not listen."""


class StuckError(GuestError):
    """The hypervisor process was killed and does not end: it waits in the kernel."""


class RefusedError(GuestError):
    """A guest's agent refused a command, or failed at it."""


class DiskBusyError(GuestError):
    """A disk is locked by another machine."""


class MemoryMisfitError(Exception):
    """A saved memory cannot be resumed: it is of another machine, damaged, or used already."""


class MemoryDamagedError(MemoryMisfitError):
    """A saved memory that no machine can be resumed from again: a file is missing or changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ran in a guest to its end, with its output."""

    exit_code: int
    output: bytes = b""
    errors: bytes = b""


class GuestAgent(Protocol):
    """The agent in a guest that runs commands for the host.

    All methods raise GuestError where the agent does not answer, or answers an error.
    """

    async def ping(self) -> None:
        """Check that the agent answers."""

    async def describe(self) -> Document:
        """Return the fields of KubeVirt's VirtualMachineInstanceGuestAgentInfo."""

    async def users(self) -> list[Document]:
        """Return logged-in users: items of KubeVirt's VirtualMachineInstanceGuestOSUserList."""

    async def filesystems(self) -> list[Document]:
        """Return mounted file systems: items of KubeVirt's VirtualMachineInstanceFileSystemList."""

    async def freeze(self) -> None:
        """Flush all file systems, and block further writes."""

    async def thaw(self) -> None:
        """Unblock writes."""

    async def set_time(self, seconds: float) -> None:
        """Set the guest's clock, in seconds since the epoch."""

    async def authorize(self, user: str, keys: Sequence[str]) -> None:
        """Let exactly these public keys log in as a user."""

    async def set_password(self, user: str, password: str) -> None:
        """Set a user's password."""

    async def bring_online(self) -> None:
        """Bring vCPUs and memory online that were plugged in, as a udev rule would."""

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """Run a program in the guest to its end, with ``typed`` as its standard input."""


class Plugs(Protocol):
    """The hotplugged disks of a running guest, and the media in its CD-ROM drives.

    Methods raise GuestError; each can be repeated after it was interrupted.
    """

    def on_released(self, listener: Callable[[str], None]) -> None:
        """Set the listener for volumes that the guest has released after ``unplug``."""

    async def recover(self) -> Mapping[str, str]:
        """Return the claims of plugged volumes, by volume; remove half-plugged ones."""

    async def plug(
        self, vmi: VirtualMachineInstance, plug: HotplugDisk, drives: Mapping[str, Drive]
    ) -> None:
        """Plug a disk in that the guest does not have yet."""

    async def unplug(self, volume: str, claim: str) -> None:
        """Request the guest to release a disk; it may take its time, or ignore the request."""


class GuestSize(NamedTuple):
    """The size of a guest: its vCPUs, and the memory with which it has booted.

    plugged_bytes: memory that it has taken since; requested_bytes: memory that it is to take.
    """

    processors: int
    boot_bytes: int
    plugged_bytes: int = 0
    requested_bytes: int = 0

    @property
    def memory_bytes(self) -> int:
        """The memory of the guest."""
        return self.boot_bytes + self.plugged_bytes


class Resizing(Protocol):
    """Plugs vCPUs and memory into a running guest.

    Methods raise GuestError; each can be repeated after it was interrupted.
    """

    def on_changed(self, listener: Callable[[], None]) -> None:
        """Set the listener for vCPUs and memory that the guest has seen, taken or released."""

    async def query(self) -> GuestSize:
        """Return the size of the guest."""

    async def plug_processors(self, count: int) -> None:
        """Plug vCPUs in until there are so many."""

    async def request_memory(self, plugged_bytes: int) -> None:
        """Request the guest to take, or release, memory until so much is plugged in.

        It may take its time, or ignore the request.
        """


class Guest(Protocol):
    """A running or ended machine.  Its methods raise GuestError where it does not comply."""

    @property
    def agent(self) -> GuestAgent:
        """The guest agent, whether it is connected or not."""

    @property
    def plugs(self) -> Plugs:
        """The hotplugged disks."""

    @property
    def resizing(self) -> Resizing:
        """The vCPUs and the memory that are plugged in."""

    @property
    def pid(self) -> int | None:
        """The process of the machine; None where it has none of its own."""

    @property
    def halted(self) -> bool:
        """True if its vCPUs have never run: it waits for the first ``resume``."""

    def usage(self) -> Usage | None:
        """Return its resource usage without waking it; None once it has ended."""

    def ran_nanos(self) -> int:
        """Return the CPU time of the thread that answers the monitor, without waking it."""

    def pulse(self) -> Pulse | None:
        """Return that CPU time, and whether the thread waits for a CPU; None once it has ended."""

    async def ping(self, seconds: float) -> None:
        """Wait for an answer of the hypervisor process; the guest may be paused.

        Raises NoAnswerError.
        """

    async def counters(self, vmi: VirtualMachineInstance) -> Counters:
        """Return the counters of its disks and vCPUs, without waking it."""

    def changes(self) -> AsyncIterator[Change]:
        """Iterate over changes: the present state, SYNCED, and others; LOST or GONE is the last."""

    async def watch(self) -> None:
        """Watch the connection, beside ``changes``, so that these report LOST when it breaks."""

    async def resume(self) -> None:
        """Run the vCPUs; the first time, this starts the guest."""

    async def pause(self) -> None:
        """Stop the vCPUs, until ``resume``."""

    async def reset(self) -> None:
        """Press the reset button."""

    async def reboot(self) -> None:
        """Request a shutdown and a new start: by the agent, else by the power button."""

    def lower_priority(self, low: bool) -> None:  # noqa: FBT001 - a switch
        """Run only on CPU time that others leave, or (False) with a full share again."""

    async def booted(self, processors: float) -> None:
        """Wait until the guest has booted, as far as that shows from outside, or has ended.

        ``processors``: how many CPUs it may use, which may be a fraction of one.
        """

    async def runs(self) -> bool:
        """Return whether its vCPUs run now: it is neither paused nor stopped."""

    async def save(self, descriptor: int) -> None:
        """Stop the guest, and write its memory and the state of its devices to an open file.

        ``changes`` has to be iterated over meanwhile.  None of its disks is written from then on,
        unless it is resumed.  After a failure the guest stays stopped, too.
        """

    async def cancel_save(self) -> None:
        """Cancel a save that has begun; the guest stays stopped."""

    async def send(self, vmi: VirtualMachineInstance, outgoing: Outgoing) -> None:
        """Send the running guest to another machine; return once all is sent, and it is stopped.

        ``changes`` has to be iterated over meanwhile.  After a failure, and if cancelled, the guest
        may be stopped until ``stay``.  Raises GuestError.
        """

    async def stay(self) -> None:
        """End a migration that has failed, and run the guest on; also an earlier manager's."""

    async def migration_counters(self) -> MigrationCounters | None:
        """Return the counters of the migration that ``send`` runs; None while there is none."""

    @property
    def stopped_at(self) -> float:
        """Time when it was stopped to be handed over, in seconds since 1970; 0 if it was not."""

    async def offer_disks(self, vmi: VirtualMachineInstance, disks: Sequence[str]) -> None:
        """Let disks of a machine that receives its guest be written by the other one."""

    async def open_disks(self) -> socket.socket:
        """Open a stream to the disks that are offered."""

    async def receive(self, memory: socket.socket, sender: socket.socket | None = None) -> None:
        """Read the guest's memory from a stream to its end; the guest runs with ``resume``.

        Both ends are closed here.  The machine holds ``sender``, the stream's other end, open
        until then: it outlives an agent that is killed, which would be the end of the stream.
        Before ``changes`` is iterated over.  Raises GuestError.
        """

    @property
    def received(self) -> bool:
        """Report whether its memory is complete, and it has not run here yet."""

    async def shape(self) -> tuple[str, ...]:
        """Return what another machine must have in common with this one to resume its memory."""

    async def io_errors(self, vmi: VirtualMachineInstance) -> Mapping[str, bool]:
        """Return the volumes whose I/O errors paused the guest, and whether space was missing."""

    async def grow(self, vmi: VirtualMachineInstance, volume: str, size: int) -> None:
        """Resize the disk of a volume to ``size`` bytes, while the guest uses it."""

    async def replug(self, vmi: VirtualMachineInstance) -> None:
        """Take the links with the pod's address down and up, so that the guest renews its lease."""

    async def listens_to_power_button(self) -> bool:
        """Return whether the guest's OS handles the power button; True if that is unknown."""

    async def power_down(self) -> None:
        """Press the power button.  The guest may take its time, or ignore it."""

    async def destroy(self) -> None:
        """Kill it; GONE follows.  Raises StuckError where it does not end in time."""

    async def query_guest_info(self) -> GuestInfo | None:
        """Query the agent for OS, host name and interfaces; None without a proper answer."""

    async def console(self) -> StreamLine:
        """Open the serial console, for one client at a time: the next one waits for its close."""

    async def screen(self) -> StreamLine:
        """Open the screen, as a remote framebuffer (RFC 6143), the protocol of VNC."""

    async def screenshot(self, *, move_cursor: bool = False) -> bytes:
        """Return a PNG of the screen; moving the cursor wakes a screen that was blanked."""

    async def release(self) -> None:
        """Disconnect without ending it: the manager stops, the machine runs on."""


class Hypervisor(Protocol):
    """Starts machines, and finds those that an earlier manager has started."""

    name: str
    needs_drives: bool
    """True if it opens the files of the disks: a simulation does not."""

    async def prepare(self) -> None:
        """Probe the host, once, in the background; methods that need the result wait for it."""

    async def boots_at_once(self) -> int:
        """Return how many guests may boot at the same time without slowing each other down."""

    async def launcher(self, machine_type: str) -> Launcher:
        """Return what a machine of a type, which may be an alias, is started in.

        Raises StartError.
        """

    async def refresh(self) -> bool:
        """Probe the host again where that is due; return whether its facts have changed."""

    async def start(self, definition: Definition) -> Guest:
        """Start a machine with halted vCPUs.  Raises StartError and MemoryMisfitError."""

    async def find(self, directory: Path) -> Guest | None:
        """Return the machine that runs for this directory, whoever started it; None if none does.

        Raises GuestError where it cannot be managed at present, and HungError where it does not
        look as if it will recover.
        """

    async def end(self, directory: Path) -> None:
        """Kill the machine that runs for this directory, whether it can be managed or not.

        Raises StuckError where it does not end in time.
        """

    async def split(self, saved: Path, memory: Path, devices: Path) -> None:
        """Split a saved guest into the pages of its memory, and the rest, of which a fork starts.

        Writes both files, which must not exist.  Raises GuestError and OSError.
        """

    def facts(self) -> Mapping[str, Any]:
        """Return facts for ``corral status``: version, accelerator, and why that one."""
