"""The seam between a machine's life and what runs it: QEMU, or a simulation of it.

``corral.node.machine.lifecycle`` drives a VM through these few verbs and never learns which of the
two it has.  A guest tells what happens to it as a stream of ``Change``; nothing is polled.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

from corral.api.kinds.vmi.hotplug import HotplugDisk
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.node.counters import Counters
from corral.node.host.process import Pulse
from corral.node.streams import StreamLine

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Change(Enum):
    """Something that happened to a guest."""

    AGENT_CONNECTED = "agent-connected"
    AGENT_DISCONNECTED = "agent-disconnected"
    PAUSED = "paused"
    PAUSED_BY_IO_ERROR = "paused-by-io-error"
    RESUMED = "resumed"
    REBOOTED = "rebooted"
    POWERED_OFF = "powered-off"  # the guest shut itself down, or obeyed the power button
    PANICKED = "panicked"
    UNFED = "unfed"  # the guest no longer fed its watchdog, which acts; what that did follows
    CUT_OFF = "cut-off"  # the guest no longer fed its watchdog, which turned it off
    LOST = "lost"  # the last one: it runs, but tells nothing any more, and must be found anew
    GONE = "gone"  # the last one: nothing of it runs any more


LAST = frozenset({Change.LOST, Change.GONE})


class Layer(NamedTuple):
    """A file below an overlay: never written, and opened so.  The format is raw or qcow2."""

    path: Path
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """The file behind one disk of a VM, and the ``layers`` below it, the nearest one first.

    ``volume``: whose it is.  ``format``: ``raw`` or ``qcow2``; never guessed, as a guest could fake
    a header.
    ``read_only`` ones (the drive of a CD-ROM is one) are opened such that not even a guest that
    broke out of its QEMU can write them.  The content of an ``ephemeral`` one may be lost with the
    host, so nothing is flushed.  ``direct``: whether its file can be written past the host's cache.
    """

    volume: str
    path: Path
    format: str = "qcow2"
    read_only: bool = False
    layers: tuple[Layer, ...] = ()
    ephemeral: bool = True
    direct: bool = False

    def files(self) -> Iterator[tuple[Path, int]]:
        """Every file behind it, and the flags to open it with."""
        yield self.path, os.O_RDONLY if self.read_only else os.O_RDWR
        for layer in self.layers:
            yield layer.path, os.O_RDONLY


class Network(Protocol):
    """What a machine is plugged into; it lasts as long as what was started in it."""

    @property
    def taps(self) -> Mapping[str, int]:
        """Descriptors of the host's ends of the machine's cards, by name of the interface."""

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread inside: what it starts is born there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A guest's memory in a file, and the ``shape`` of the machine that it was saved of."""

    file: Path
    shape: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What is to run: an instance, the files of its volumes, and the directory that is its own.

    Without a ``network`` its cards are behind a user network of the hypervisor's own; with a
    ``memory`` its guest goes on from there, instead of booting.
    """

    vmi: VirtualMachineInstance
    directory: Path
    drives: Mapping[str, Drive] = field(default_factory=dict)
    network: Network | None = None
    memory: Memory | None = None


class Usage(NamedTuple):
    """What a guest has taken: processor time since its start, and the memory that it holds now."""

    cpu_nanos: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestInterface:
    """A network interface as the guest itself sees it."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a guest says of itself through its agent; ``os`` is KubeVirt's guestOSInfo."""

    os: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    interfaces: Sequence[GuestInterface] = ()


class StartError(Exception):
    """A VM could not be started: a reason for conditions, what happened, and what helps.

    busy: the volume whose disk another machine has, where that is why.
    lasting: whether it is so for good, so that waiting helps nobody.
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
    """A guest cannot be told what to do, or what it runs on does not answer."""


class NoAnswerError(GuestError):
    """What a guest runs in does not answer in time: it hangs, or is slow."""


class HungError(GuestError):
    """What a guest runs in can be reached no more: it does nothing, or nobody listens there."""


class StuckError(GuestError):
    """What a guest runs in was killed and does not end: it waits for the kernel."""


class RefusedError(GuestError):
    """A guest's agent answers that it has not done what it was told."""


class DiskBusyError(GuestError):
    """A guest cannot have a disk, as another machine has it."""


class MemoryMisfitError(Exception):
    """A guest cannot go on from a memory: it is of another machine, damaged, or used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ran in a guest, and what it wrote."""

    exit_code: int
    output: bytes = b""
    errors: bytes = b""


class GuestAgent(Protocol):
    """The program in a guest that does things for the host.

    All of it raises GuestError where the agent does not answer, or not as it should.
    """

    async def ping(self) -> None:
        """Whether it answers at all."""

    async def describe(self) -> Document:
        """The fields of KubeVirt's VirtualMachineInstanceGuestAgentInfo."""

    async def users(self) -> list[Document]:
        """Who is logged in: items of KubeVirt's VirtualMachineInstanceGuestOSUserList."""

    async def filesystems(self) -> list[Document]:
        """What is mounted: items of KubeVirt's VirtualMachineInstanceFileSystemList."""

    async def freeze(self) -> None:
        """Write everything to the disks, and hold every further write back."""

    async def thaw(self) -> None:
        """Let writes go on."""

    async def set_time(self, seconds: float) -> None:
        """Set the guest's clock, in seconds of the epoch."""

    async def authorize(self, user: str, keys: Sequence[str]) -> None:
        """Let these public keys log in as a user, and no others."""

    async def set_password(self, user: str, password: str) -> None:
        """Give a user a password."""

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """Run a program in the guest to its end, with this as its standard input."""


class Plugs(Protocol):
    """The disks of a guest that come and go while it runs, and the media in its CD-ROM drives.

    Their verbs raise GuestError, and can be taken again after they were cut.
    """

    def on_gone(self, listener: Callable[[str], None]) -> None:
        """Whom to call whenever a guest lets go of a volume that it was asked for."""

    async def settle(self) -> Mapping[str, str]:
        """The volumes whose disks are there, and their claims; rests of others are cleared away."""

    async def plug(
        self, vmi: VirtualMachineInstance, plug: HotplugDisk, drives: Mapping[str, Drive]
    ) -> None:
        """Give the guest a disk that it does not have yet."""

    async def unplug(self, volume: str, claim: str) -> None:
        """Ask the guest to let go of a disk, which may take its time, or ignore it."""


class Guest(Protocol):
    """A VM that runs, or ran.  Its verbs raise GuestError where it does not do as it is told."""

    @property
    def agent(self) -> GuestAgent:
        """Its agent, whether that is there or not."""

    @property
    def plugs(self) -> Plugs:
        """Its disks that come and go."""

    @property
    def pid(self) -> int | None:
        """The process that it runs in; None where it is none of its own."""

    @property
    def halted(self) -> bool:
        """Whether its processors have never run: it waits for the first ``resume``."""

    def usage(self) -> Usage | None:
        """What it takes of its node, told without waking it; None once it has ended."""

    def ran_nanos(self) -> int:
        """How long what answers for it has run, told without waking it."""

    def pulse(self) -> Pulse | None:
        """The same, and whether it waits for a processor; None once it has ended."""

    async def ping(self, seconds: float) -> None:
        """Have what it runs in answer, its guest may be paused.  Raises NoAnswerError."""

    async def counters(self, vmi: VirtualMachineInstance) -> Counters:
        """What its disks and processors have done so far, told without waking it."""

    def changes(self) -> AsyncIterator[Change]:
        """What happens from now on, beginning with what is so already; LOST or GONE is last."""

    async def watch(self) -> None:
        """Beside ``changes``: has them tell when the guest cannot be reached any more."""

    async def resume(self) -> None:
        """Let the virtual CPUs run: the first time, this starts the guest."""

    async def pause(self) -> None:
        """Stop the virtual CPUs, until ``resume``."""

    async def reset(self) -> None:
        """Press the reset button."""

    async def reboot(self) -> None:
        """Ask the guest to shut down and start again: by its agent, else by the power button."""

    def step_back(self, back: bool) -> None:  # noqa: FBT001 - a switch
        """Leave the processors to others as far as they want them, or claim a full share again."""

    async def booted(self, processors: float) -> None:
        """Until it is up as far as can be told from outside, or has ended.

        ``processors``: how many it may use, which may be a fraction of one.
        """

    async def save(self, descriptor: int) -> None:
        """Stop it, and write its memory and the state of its devices to an open file.

        None of its disks is written from then on, unless it is resumed.  Where this fails it stays
        stopped too.
        """

    async def give_up_saving(self) -> None:
        """Write no more of its memory, if that was begun; it stays stopped."""

    async def shape(self) -> tuple[str, ...]:
        """What a machine must have in common with this one to go on from its memory."""

    async def io_errors(self, vmi: VirtualMachineInstance) -> Mapping[str, bool]:
        """The volumes that it is paused for, and whether there was no space for a write."""

    async def grow(self, vmi: VirtualMachineInstance, volume: str, size: int) -> None:
        """Let the disk that shows a volume have so many bytes, while the guest uses it."""

    async def replug(self, vmi: VirtualMachineInstance) -> None:
        """Pull the cables out of the cards that have the pod's address, and plug them in again."""

    async def hears_power_button(self) -> bool:
        """Whether its system listens to the power button; True also where nobody can tell."""

    async def power_down(self) -> None:
        """Press the power button.  The guest may take its time, or ignore it."""

    async def destroy(self) -> None:
        """End it now; GONE follows.  Raises StuckError where that takes longer than it should."""

    async def introduce(self) -> Introduction | None:
        """Ask the guest's agent who it is; None where it does not answer properly."""

    async def console(self) -> StreamLine:
        """Open the serial console.  One line at a time: the next waits until this one is closed."""

    async def screen(self) -> StreamLine:
        """Open its screen: the remote framebuffer protocol (RFC 6143), as VNC speaks it."""

    async def screenshot(self, *, move_cursor: bool = False) -> bytes:
        """What the screen shows, as PNG; moving the cursor wakes a screen that was blanked."""

    async def release(self) -> None:
        """Let go of it without ending it: the manager stops, the VM runs on."""


class Hypervisor(Protocol):
    """Starts guests, and finds the ones that a manager before this one has started."""

    name: str
    needs_drives: bool
    """Whether it opens the files behind the disks: a simulation does not."""

    async def prepare(self) -> None:
        """Get ready: run once, beside everything else; whoever needs its result waits for it."""

    async def boots_at_once(self) -> int:
        """How many guests may boot at the same time without being in each other's way."""

    async def start(self, definition: Definition) -> Guest:
        """Start it with halted CPUs.  Raises StartError, and MemoryMisfitError."""

    async def find(self, directory: Path) -> Guest | None:
        """The guest that runs for this directory, whoever started it; None where none does.

        Raises GuestError where one runs that cannot be managed, at least not now, and HungError
        where it looks as if that will stay so.
        """

    async def end(self, directory: Path) -> None:
        """End what runs for this directory, whether it can be managed or not.

        Raises StuckError where it is killed, and does not end.
        """

    def facts(self) -> Mapping[str, Any]:
        """What ``corral status`` tells of it: version, accelerator, why."""
