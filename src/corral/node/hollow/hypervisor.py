"""Hollow machines: simulated guests, under the same agent.

For tests of scale and of the control plane.  A hollow guest boots after a set time, may fail with a
set probability, uses next to no memory, and obeys the power button at once.  Its state is a file
in its machine's directory, so it outlives the manager as a real one does.
"""

import asyncio
import os
import random
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from corral import files
from corral.aio import Signal
from corral.api.kinds.vmi.launcher import launcher
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.counters import Counters, MigrationCounters
from corral.node.hollow.guest_agent import HollowAgent
from corral.node.hollow.plugs import HollowPlugs
from corral.node.hollow.resizing import HollowResizing, initial_size
from corral.node.hollow.streams import echo
from corral.node.host.process import Pulse
from corral.node.hypervisor import (
    LAST,
    Change,
    Definition,
    GuestError,
    GuestInfo,
    Launcher,
    Memory,
    MemoryMisfitError,
    NoAnswerError,
    Outgoing,
    StartError,
    StuckError,
    Usage,
)
from corral.node.network.attachment import PodReference
from corral.node.network.pod_layout import families
from corral.node.status.node_status import Capacity
from corral.node.streams import StreamLine

CAPACITY = Capacity(cpu=100_000, memory_bytes=1 << 50, storage_bytes=1 << 50, pods=1_000_000)
"""The capacity of a node of hollow machines."""

_RECORD = "hollow.json"
_LOG = "console.log"
_SHAPE = ("hollow",)
_RESIDENT_BYTES = 4096


class _State(msgspec.Struct):
    """The state of a hollow guest on disk: when it is up, and when it fails, in seconds since 1970.

    memory: a value that only this guest has, or one that resumes from its memory.
    load: its CPU usage, in CPUs.
    stopped: it was saved or sent, and does nothing any more.
    receiving: its guest is not here yet.
    paused: its vCPUs are stopped.
    """

    up_at: float
    memory: str = ""
    load: float = 0.0
    fails_at: float | None = None
    halted: bool = True
    stopped: bool = False
    receiving: bool = False
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The behaviour of hollow guests.

    ``start_failures`` and ``crashes`` are probabilities; a guest that crashes does so within
    ``crash_seconds`` after it is up.  ``cpu_share`` is the CPU usage that each reports, in CPUs;
    a migration takes ``migration_seconds``.
    """

    boot_seconds: float = 0.0
    shutdown_seconds: float = 0.0
    start_failures: float = 0.0
    crashes: float = 0.0
    crash_seconds: float = 10.0
    cpu_share: float = 0.0
    migration_seconds: float = 0.0
    seed: int = 0


class Hollow:
    """The hypervisor of hollow machines."""

    name = "hollow"
    needs_drives = False

    def __init__(self, behaviour: Behaviour | None = None, *, at_once: int = 1_000_000) -> None:
        self.behaviour = behaviour or Behaviour()
        self._random = random.Random(self.behaviour.seed)  # noqa: S311 - repeatable, guards nothing
        self._at_once = at_once
        self.version = self._reported = "1"
        """Its version; set by tests, as if another one were installed."""
        self.guests: dict[Path, HollowGuest] = {}
        """Running guests by directory: tests and benchmarks act on them."""

    async def prepare(self) -> None:
        """Do nothing: there is no host to probe."""

    async def boots_at_once(self) -> int:
        return self._at_once

    def facts(self) -> Mapping[str, Any]:
        return {
            "hypervisor": self.name,
            "accelerator": "none",
            "reason": "machines are simulated, no guest runs",
            "launcher": self._launcher(),
        }

    async def launcher(self, machine_type: str) -> Launcher:
        return Launcher(self._launcher(), machine_type)

    def _launcher(self) -> str:
        return launcher(f"{self.name} {self.version}")

    async def refresh(self) -> bool:
        changed = self.version != self._reported
        self._reported = self.version
        return changed

    async def start(self, definition: Definition) -> "HollowGuest":
        """Start a guest.

        Raises StartError as often as the behaviour says, and MemoryMisfitError.
        """
        behaviour = self.behaviour
        if self._random.random() < behaviour.start_failures:
            raise StartError("StartFailed", "the hollow machine is set to fail")
        up_at = time.time() + behaviour.boot_seconds
        memory = f"{self._random.getrandbits(64):016x}"
        state = _State(up_at=up_at, memory=memory, load=behaviour.cpu_share)
        if definition.memory is not None:
            state = _saved_state(definition.memory)
        state.receiving = definition.receives
        if self._random.random() < behaviour.crashes:
            state.fails_at = up_at + self._random.uniform(0, behaviour.crash_seconds)
        guest = self.guests[definition.directory] = HollowGuest(self, definition.directory, state)
        guest.plugs.plug_initial(definition.vmi)
        guest.resizing.set_initial(initial_size(definition.vmi))
        guest.write()
        return guest

    async def find(self, directory: Path) -> "HollowGuest | None":
        if (present := self.guests.get(directory)) is not None:
            return present
        state = files.read_state(directory / _RECORD, _State)
        if state is None:
            return None
        guest = self.guests[directory] = HollowGuest(self, directory, state)
        return guest

    async def split(self, saved: Path, memory: Path, devices: Path) -> None:
        await asyncio.to_thread(memory.touch)
        await asyncio.to_thread(saved.rename, devices)

    async def end(self, directory: Path) -> None:
        if (guest := await self.find(directory)) is not None:
            await guest.destroy()
            await guest.release()


def _saved_state(memory: Memory) -> _State:
    """Return the state of a saved guest.  Raises MemoryMisfitError."""
    if memory.shape != _SHAPE:
        raise MemoryMisfitError("it was saved from a machine that is not hollow")
    state = files.read_json(memory.file, _State)
    if state is None:
        raise MemoryMisfitError("its memory cannot be read")
    state.halted, state.stopped = False, True
    return state


class HollowNetworks:
    """Networks without links: hollow machines have addresses that nothing replies at."""

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        return families(vmi)

    async def allocate(
        self,
        owner: str,
        pod: PodReference,
        vmi: VirtualMachineInstance,
        ranges: Sequence[str],
    ) -> None:
        """Return None: addresses are of the node's ranges."""

    async def attach(
        self, owner: str, vmi: VirtualMachineInstance, addresses: Iterable[str], *, held: bool
    ) -> None: ...

    async def adopt(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Iterable[str],
        pid: int,
        *,
        held: bool,
    ) -> None: ...

    async def take_over(self, owner: str) -> None: ...

    async def give_back(self, owner: str, addresses: Iterable[str]) -> None: ...

    def let_go(self, owner: str, addresses: Iterable[str], node: str, pod: Key) -> None: ...

    def detach(self, owner: str) -> None: ...


class HollowGuest:
    """One hollow guest."""

    def __init__(self, hypervisor: Hollow, directory: Path, state: _State) -> None:
        self._hypervisor = hypervisor
        self._directory = directory
        self._state = state
        self._changes: list[Change] = []
        self._changed = Signal()
        self._up = Signal()
        self._timers: set[asyncio.TimerHandle] = set()
        """Pending changes."""
        self.shutdown_seconds = hypervisor.behaviour.shutdown_seconds
        """Seconds until it obeys the power button; set by tests."""
        self.hung = False
        """True if it hangs; set by tests."""
        self.stuck = False
        """True if it ignores being killed; set by tests."""
        self.stopped_at = 0.0
        """Time when it was stopped to be handed over, in seconds since 1970; 0 if it was not."""
        self._sends = False
        self._cpu_nanos = 0
        self._counted_at = asyncio.get_running_loop().time()
        self.agent = HollowAgent(directory.name, self._set_load)
        self.plugs = HollowPlugs(directory)
        self.resizing = HollowResizing(directory)
        if not (state.halted or state.stopped or state.receiving):
            self._run()
            if state.up_at <= time.time():  # part of the state in which it is found
                self._cancel_timers()
                self._finish_boot()
                self._schedule_crash()

    @property
    def pid(self) -> None:
        """None: it has no process."""

    @property
    def halted(self) -> bool:
        return self._state.halted

    @property
    def memory(self) -> str:
        """The value that no other guest has."""
        return self._state.memory

    def write(self) -> None:
        files.append_state(self._directory / _RECORD, msgspec.json.encode(self._state))

    def _run(self) -> None:
        self.happen(Change.PAUSED if self._state.paused else Change.RESUMED)
        self._schedule(self._state.up_at, self._finish_boot)
        self._schedule_crash()

    def _schedule_crash(self) -> None:
        if self._state.fails_at is not None:
            self._schedule(self._state.fails_at, self.crash)

    def _schedule(self, moment: float, act: Any) -> None:
        self._after(max(0.0, moment - time.time()), act)

    def _after(self, delay: float, act: Any) -> None:
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers.discard(timer)
            act()

        timer = loop.call_later(delay, due)
        self._timers.add(timer)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _finish_boot(self) -> None:
        self._up.set()
        self.happen(Change.AGENT_CONNECTED)

    def happen(self, change: Change) -> None:
        """Make a change happen in the guest."""
        self._changes.append(change)
        self._changed.set()

    def crash(self) -> None:
        """End it, as ``kill -9`` ends a real one."""
        self._vanish()

    @property
    def load(self) -> float:
        """Its CPU usage while it runs, in CPUs; its agent, tests and benchmarks set it."""
        return self._state.load

    @load.setter
    def load(self, share: float) -> None:
        self._account()
        self._state.load = share
        self.write()

    def _set_load(self, share: float) -> None:
        self.load = share

    def usage(self) -> Usage:
        """Return the usage of a real guest under this load; its memory is that of a file."""
        self._account()
        return Usage(self._cpu_nanos, _RESIDENT_BYTES)

    def ran_nanos(self) -> int:
        return 0 if self.hung else int(asyncio.get_running_loop().time() * 1e9)

    def pulse(self) -> Pulse:
        return Pulse(self.ran_nanos(), runnable=False)

    async def ping(self, seconds: float) -> None:
        if self.hung:
            await asyncio.sleep(seconds)
            raise NoAnswerError(f"it is set to hang, and did so for {seconds:g} s")

    async def counters(self, vmi: VirtualMachineInstance) -> Counters:  # noqa: ARG002
        return Counters()

    def _account(self) -> None:
        now = asyncio.get_running_loop().time()
        if not (self._state.paused or self._state.halted or self._state.stopped):
            self._cpu_nanos += int((now - self._counted_at) * self.load * 1e9)
        self._counted_at = now

    async def changes(self) -> AsyncIterator[Change]:
        change = None
        if LAST.isdisjoint(self._changes):
            self._changes.append(Change.SYNCED)
        while change not in LAST:
            while not self._changes:
                self._changed.clear()
                await self._changed.wait()
            yield (change := self._changes.pop(0))

    async def watch(self) -> None:
        """Do nothing: the connection never breaks."""

    async def resume(self) -> None:
        self._account()
        self._state.paused = False
        if self._state.halted or self._state.stopped:
            self._state.halted = self._state.stopped = False
            self.write()
            self._run()
        else:
            self.write()
            self.happen(Change.RESUMED)

    def lower_priority(self, low: bool) -> None:  # noqa: FBT001
        """Do nothing: it uses no CPU."""

    async def booted(self, processors: float) -> None:  # noqa: ARG002
        await self._up.wait()

    async def pause(self) -> None:
        self._account()
        self._state.paused = True
        self.write()
        self.happen(Change.PAUSED)

    async def reset(self) -> None:
        self.happen(Change.REBOOTED)
        self._after(self._hypervisor.behaviour.boot_seconds, self._finish_boot)

    async def reboot(self) -> None:
        await self.reset()

    async def runs(self) -> bool:
        return not (self._state.paused or self._state.halted or self._state.stopped)

    async def save(self, descriptor: int) -> None:
        self._cancel_timers()
        self._account()
        self._state.stopped = True
        self.write()
        os.write(descriptor, msgspec.json.encode(self._state))

    async def cancel_save(self) -> None:
        """Do nothing: it is saved at once."""

    async def send(self, vmi: VirtualMachineInstance, outgoing: Outgoing) -> None:  # noqa: ARG002
        self._sends = True
        await asyncio.sleep(self._hypervisor.behaviour.migration_seconds)
        self._cancel_timers()
        self._account()
        self._state.stopped = True
        self.stopped_at = time.time()
        self.write()
        outgoing.stopped()
        content = msgspec.json.encode(self._state)
        try:
            with outgoing.memory:
                await asyncio.get_running_loop().sock_sendall(outgoing.memory, content)
        except OSError as error:
            raise GuestError(f"its memory cannot be sent: {error.strerror}") from error

    async def stay(self) -> None:
        self._sends = False
        if self._state.stopped:
            await self.resume()

    async def migration_counters(self) -> MigrationCounters | None:
        """Return the counters of a guest whose memory is one page, until it is sent."""
        if not self._sends:
            return None
        sent = _RESIDENT_BYTES if self._state.stopped else 0
        return MigrationCounters(_RESIDENT_BYTES, sent, _RESIDENT_BYTES - sent, 0.0, 0.0)

    async def offer_disks(self, vmi: VirtualMachineInstance, disks: Sequence[str]) -> None:
        """Do nothing: it has no disks."""

    async def open_disks(self) -> socket.socket:
        raise GuestError("a hollow machine has no disks")

    async def receive(self, memory: socket.socket, sender: socket.socket | None = None) -> None:
        if sender is not None:
            sender.close()  # this machine ends with its agent in any case
        loop, content = asyncio.get_running_loop(), b""
        with memory:
            while part := await loop.sock_recv(memory, 1 << 16):
                content += part
        try:
            self._state = msgspec.json.decode(content, type=_State)
        except msgspec.DecodeError as error:
            raise GuestError(f"its memory is not whole: {error}") from error
        self.write()

    @property
    def received(self) -> bool:
        return self._state.stopped

    async def replug(self, vmi: VirtualMachineInstance) -> None:
        """Do nothing: it has no links."""

    async def shape(self) -> tuple[str, ...]:
        return _SHAPE

    async def io_errors(self, vmi: VirtualMachineInstance) -> Mapping[str, bool]:  # noqa: ARG002
        return {}

    async def grow(self, vmi: VirtualMachineInstance, volume: str, size: int) -> None:
        """Do nothing: it has no disks."""

    async def listens_to_power_button(self) -> bool:
        return self._up.is_set()

    async def power_down(self) -> None:
        if self.hung:
            return
        self._after(self.shutdown_seconds, lambda: self.happen(Change.POWERED_OFF))

    async def destroy(self) -> None:
        if self.stuck:
            raise StuckError("it is set not to end")
        self._vanish()

    async def query_guest_info(self) -> GuestInfo | None:
        return GuestInfo(os={"name": "hollow"}, hostname=self._directory.name)

    async def console(self) -> StreamLine:
        return await echo(b"\r\nhollow login: ")

    async def screen(self) -> StreamLine:
        return await echo(b"RFB 003.008\n")

    async def screenshot(self, *, move_cursor: bool = False) -> bytes:  # noqa: ARG002
        return PICTURE

    async def release(self) -> None:
        self._cancel_timers()
        self._hypervisor.guests.pop(self._directory, None)

    def _vanish(self) -> None:
        (self._directory / _RECORD).unlink(missing_ok=True)
        self._up.set()
        self.happen(Change.GONE)


def _picture() -> bytes:
    """Return a black screen as the smallest picture: one black point (PNG, second edition)."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


PICTURE = _picture()
