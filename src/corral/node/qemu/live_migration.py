"""QEMU's live migration: memory over a descriptor, disks by mirrors into the target's NBD server.

The sequence is libvirt's for storage that is not shared.  The source pauses before it switches
over (``pause-before-switchover``), so it never does so without its manager; the target is started
with ``-S``, so its guest waits for its manager as well.  An emulated guest is stopped before its
memory is sent; one that KVM runs is not before the rest of it is.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from corral.aio import Background
from corral.api.errors import shortened
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.counters import MigrationCounters
from corral.node.hypervisor import GuestError, MigrationOptions, Outgoing
from corral.node.qemu.devices.disks import node_of
from corral.node.qemu.migration_file import (
    ACTIVE,
    COMPLETED,
    ENDS,
    UNBOUNDED,
    read_incoming,
    set_capabilities,
)
from corral.node.qemu.monitor import Event, Monitor, MonitorError
from corral.node.qemu.sockets import listen
from corral.node.qemu.stream_listener import StreamListener

DISKS = "disks.sock"
_NAME = "migration"  # of the descriptor on its way to QEMU
_SENDER = "sender"  # of the other end of a stream, while QEMU reads it
_FIRST_DOWNTIME_MS = 20
_PRE_SWITCHOVER = "pre-switchover"
_FAILED = frozenset({"failed", "cancelled"})
_STOPPED = frozenset({"paused", "postmigrate", "finish-migrate"})
_SAMPLE_SECONDS = 1.0
STUCK = "Live migration stuck for {:g} seconds and has been aborted"
INCOMPLETE = "Live migration is not completed after {:g} seconds and has been aborted"
"""KubeVirt's messages of progressTimeout and completionTimeoutPerGiB."""
_JOB_EVENTS = {
    "BLOCK_JOB_READY": "ready",
    "BLOCK_JOB_COMPLETED": "completed",
    "BLOCK_JOB_CANCELLED": "completed",
}


class SourceMigration:
    """The migration of one guest away from its QEMU, whose process is ``pid``.

    ``on_event`` gets QEMU's events.
    """

    def __init__(self, monitor: Monitor, pid: int) -> None:
        self._monitor = monitor
        self._pid = pid
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._jobs: dict[str, str] = {}
        self._status = ""
        self._failure = ""
        self.is_active = False
        """True while STOP and RESUME are side effects of it."""
        self.stopped_at = 0.0
        """Time when QEMU has stopped the guest for it, in seconds since 1970; 0 before."""

    def on_event(self, event: Event) -> None:
        """Take an event, if it is about the migration."""
        name, data = event["event"], event.get("data", {})
        if name == "MIGRATION":
            self._status = data.get("status", "")
        elif name in _JOB_EVENTS:
            # A mirror that has failed completes, too, with an error.
            state = "failed" if data.get("error") else _JOB_EVENTS[name]
            self._jobs[data.get("device", "")] = state
        elif name == "STOP":
            self.stopped_at = _time_of(event)
            return
        elif name != "END":
            return
        self._events.put_nowait(event)

    async def send(self, vmi: VirtualMachineInstance, outgoing: Outgoing) -> None:
        """Send the guest; return once all is sent, and it is stopped.  Raises GuestError."""
        self.is_active = True
        self._jobs, self._status, self._failure = {}, "", ""
        self.stopped_at = 0.0
        failure: GuestError | None = None
        async with Background() as tasks:
            try:
                await self._send(tasks, vmi, outgoing)
            except GuestError as error:
                failure = error  # raised below, since a task group would wrap it
            finally:
                outgoing.memory.close()
        if failure is not None:
            raise failure

    async def _send(
        self, tasks: Background, vmi: VirtualMachineInstance, outgoing: Outgoing
    ) -> None:
        nodes = [_node(vmi, volume) for volume in outgoing.disks]
        memory = guest_memory(vmi.spec.domain).rounded_up()
        tasks.start(self._limit(outgoing.options, memory), name="limits")
        for volume, node in zip(outgoing.disks, nodes, strict=True):
            await self._mirror(tasks, outgoing, volume, node)
        await self._until(lambda: all(self._jobs.get(_job(one)) == "ready" for one in nodes))
        runs = (await self._monitor.execute("query-kvm"))["enabled"]
        if not runs:
            # QEMU's emulation now and then misses a page that is written as it is sent, and the
            # guest crashes at the target (ADR 0092).
            await self._monitor.execute("stop")
            outgoing.stopped()
        await self._send_memory(outgoing)
        tasks.start(self._allow_downtime(outgoing.options), name="downtime")
        await self._until(lambda: self._status == _PRE_SWITCHOVER)
        if runs:
            outgoing.stopped()
        await self._finish_mirrors(nodes)
        await self._monitor.execute("migrate-continue", {"state": _PRE_SWITCHOVER})
        await self._until(lambda: self._status == COMPLETED)

    async def _mirror(self, tasks: Background, outgoing: Outgoing, volume: str, node: str) -> None:
        """Start to copy a disk, and all that is written from now on."""

        async def open_disk() -> socket.socket:
            return await outgoing.open_disk(volume)

        try:
            listener = await StreamListener.create(self._pid, open_disk)
        except OSError as error:
            raise GuestError(f"the disk {volume} cannot be copied: {error.strerror}") from error
        tasks.start(self._relay(listener, node), name=f"disk {volume}")
        remote = {
            "driver": "nbd",
            "node-name": _target(node),
            "server": listener.address,
            "export": node,
            "discard": "unmap",
        }
        await self._monitor.execute("blockdev-add", remote)
        mirror = {
            "job-id": _job(node),
            "device": node,
            "target": _target(node),
            "sync": "top",
            "copy-mode": "write-blocking",
            "on-target-error": "report",
        }
        await self._monitor.execute("blockdev-mirror", mirror)

    async def _relay(self, listener: StreamListener, node: str) -> None:
        """Relay a disk's stream; its end before that of the mirror fails the migration."""
        with suppress(GuestError, OSError):
            await listener.run()
        if self._jobs.get(_job(node)) != "completed":
            self.on_event({"event": "BLOCK_JOB_COMPLETED", "data": _lost(node)})

    async def _send_memory(self, outgoing: Outgoing) -> None:
        await set_capabilities(
            self._monitor,
            pause_before_switchover=True,
            auto_converge=outgoing.options.auto_converge,
        )
        parameters = {
            "max-bandwidth": outgoing.options.bandwidth or UNBOUNDED,
            "downtime-limit": min(_FIRST_DOWNTIME_MS, outgoing.options.max_downtime_ms),
        }
        await self._monitor.execute("migrate-set-parameters", parameters)
        await self._monitor.lend(outgoing.memory.fileno(), "getfd", {"fdname": _NAME})
        outgoing.memory.close()  # so that QEMU's end is the only one
        await self._monitor.execute("migrate", {"uri": f"fd:{_NAME}"})

    async def _finish_mirrors(self, nodes: Sequence[str]) -> None:
        """End the mirrors, whose targets are the same as their sources: the guest is stopped.

        The nodes that they have written to go with QEMU: to remove them takes time as well.
        """
        for node in nodes:
            await self._monitor.execute("block-job-cancel", {"device": _job(node)})
        await self._until(lambda: all(self._jobs[_job(node)] == "completed" for node in nodes))

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for events until a condition holds.  Raises GuestError if something has failed."""
        while not condition():
            if self._failure:
                raise GuestError(self._failure)
            if self._status in _FAILED:
                raise GuestError(await self._why_failed())
            for job, state in self._jobs.items():
                if state == "failed":
                    raise GuestError(f"the copy of a disk has failed ({job})")
            await self._next_event()

    async def _limit(self, options: MigrationOptions, memory: int) -> None:
        """Fail a migration that takes too long, or makes no progress; from its disks on.

        The guest's writes wait for their copies, so that a target which hangs stops them.  QEMU
        reports neither as an event: its counters are read once a second (virt-launcher's way).
        ``memory``: bytes of the guest.
        """
        now = asyncio.get_running_loop().time
        begun = progressed = now()
        progress = _Progress(memory)
        while not self._failure:
            await asyncio.sleep(_SAMPLE_SECONDS)
            with suppress(MonitorError):  # its end is an event
                sent = (await self._monitor.execute("query-migrate")).get("ram")
                if progress.observe(sent, await self._copies()):
                    progressed = now()
            seconds = options.completion_seconds_per_gib * progress.gibibytes
            if 0 < options.progress_seconds < now() - progressed:
                self._failure = STUCK.format(options.progress_seconds)
            elif 0 < seconds < now() - begun:
                self._failure = INCOMPLETE.format(seconds)
        self._events.put_nowait({"event": "LIMIT"})

    async def _copies(self) -> list[dict[str, Any]]:
        """Return QEMU's counters of the disks that are copied."""
        jobs = await self._monitor.execute("query-block-jobs")
        return [each for each in jobs if each["device"].startswith(_PREFIX)]

    async def _allow_downtime(self, options: MigrationOptions) -> None:
        """Allow twice the downtime each second, up to its limit.

        QEMU stops the guest as soon as the rest fits into what is allowed, so that an idle guest
        would stand still for longer than it has to.
        """
        allowed = _FIRST_DOWNTIME_MS
        while allowed < options.max_downtime_ms:
            await asyncio.sleep(_SAMPLE_SECONDS)
            allowed = min(2 * allowed, options.max_downtime_ms)
            with suppress(MonitorError):  # its end is an event
                parameters = {"downtime-limit": allowed}
                await self._monitor.execute("migrate-set-parameters", parameters)

    async def counters(self) -> MigrationCounters | None:
        """Return the counters of the migration; None while there is none.  Raises GuestError."""
        if not self.is_active:
            return None
        memory = (await self._monitor.execute("query-migrate")).get("ram", {})
        disks = await self._copies()
        return MigrationCounters(
            total=memory.get("total", 0) + sum(each["len"] for each in disks),
            processed=memory.get("transferred", 0) + sum(each["offset"] for each in disks),
            remaining=memory.get("remaining", 0)
            + sum(each["len"] - each["offset"] for each in disks),
            dirty_rate=memory.get("dirty-pages-rate", 0) * memory.get("page-size", 0),
            transfer_rate=memory.get("mbps", 0) * _MEGABIT,
        )

    async def _why_failed(self) -> str:
        status = await self._monitor.execute("query-migrate")
        return f"QEMU cannot send its memory: {status.get('error-desc', self._status)}"

    async def stay(self) -> None:
        """End a migration, also an earlier manager's, and run the guest on.  Raises GuestError."""
        monitor = self._monitor
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                if (await monitor.execute("query-migrate")).get("status") in ACTIVE:
                    self._status = ""
                    await monitor.execute("migrate_cancel")
                    while self._status not in ENDS:
                        await self._next_event()
                await self._end_mirrors()
        except TimeoutError as error:
            raise GuestError("its migration cannot be cancelled") from error
        if (await monitor.execute("query-status"))["status"] in _STOPPED:
            await monitor.execute("cont")
        self.is_active = False

    async def _end_mirrors(self) -> None:
        """End the mirrors, and remove the nodes that they have written to."""
        monitor = self._monitor
        jobs = [each["device"] for each in await monitor.execute("query-block-jobs")]
        for job in (each for each in jobs if each.startswith(_PREFIX)):
            self._jobs.pop(job, None)
            with suppress(MonitorError):  # it ends at this moment
                await monitor.execute("block-job-cancel", {"device": job, "force": True})
            while self._jobs.get(job) not in _JOB_ENDS:
                await self._next_event()
        named = await monitor.execute("query-named-block-nodes", {"flat": True})
        for node in (each["node-name"] for each in named):
            if node.startswith(_PREFIX):
                await monitor.execute("blockdev-del", {"node-name": node})

    async def _next_event(self) -> None:
        if (await self._events.get())["event"] == "END":
            raise GuestError("QEMU has ended")


class _Progress:
    """The bytes of a guest that are left to send; ``memory``: the size of its memory."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._sizes: dict[str, int] = {}
        """Of the copies as they began: a copy grows with what the guest writes."""
        self._least: int | None = None
        self._sends_memory = False

    def observe(
        self, memory: Mapping[str, int] | None, copies: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Take counters, of memory once that is sent; return whether less is left than ever.

        Memory follows when the disks are copied, so that then more is left.
        """
        for each in copies:
            if each["len"]:
                self._sizes.setdefault(each["device"], each["len"])
        left = sum(each["len"] - each["offset"] for each in copies)
        left += (memory or {}).get("remaining", 0)
        begins = memory is not None and not self._sends_memory
        self._sends_memory = self._sends_memory or begins
        if self._least is None or begins or left < self._least:
            self._least = left
            return True
        return False

    @property
    def gibibytes(self) -> int:
        """The size of memory and disks; a part of a GiB counts as one."""
        return max(1, -(-(self._memory + sum(self._sizes.values())) // (1 << 30)))


_PREFIX = "move-"
_CANCEL_SECONDS = 10.0
_JOB_ENDS = frozenset({"completed", "failed"})


_MEGABIT = 1_000_000 / 8
"""Bytes of QEMU's unit of throughput."""


def _time_of(event: Event) -> float:
    """Return when an event happened, in seconds since 1970."""
    stamp = event.get("timestamp", {})
    return float(stamp.get("seconds", 0) + stamp.get("microseconds", 0) / 1e6)


def _node(vmi: VirtualMachineInstance, volume: str) -> str:
    """Return the block node of a volume that the target names.  Raises GuestError."""
    try:
        return node_of(vmi, volume)
    except KeyError:
        what = shortened(volume)
        raise GuestError(f"the target asks for the disk {what!r}, which the VMI lacks") from None


def _job(node: str) -> str:
    return f"{_PREFIX}{node}"


def _target(node: str) -> str:
    return f"{_PREFIX}to-{node}"


def _lost(node: str) -> Mapping[str, str]:
    return {"device": _job(node), "error": "the connection to the target is lost"}


async def offer_disks(monitor: Monitor, directory: Path, nodes: Sequence[str]) -> None:
    """Serve the disks of a QEMU that receives its guest, at ``DISKS`` in its directory."""
    if not nodes:
        return
    with listen(directory / DISKS) as listening:
        await monitor.lend(listening.fileno(), "getfd", {"fdname": DISKS})
    address = {"type": "fd", "data": {"str": DISKS}}
    await monitor.execute("nbd-server-start", {"addr": address})
    for node in nodes:
        export = {"type": "nbd", "id": node, "node-name": node, "name": node, "writable": True}
        await monitor.execute("block-export-add", export)


async def receive(
    monitor: Monitor, memory: socket.socket, sender: socket.socket | None = None, *, offers: bool
) -> None:
    """Read a guest's memory to its end; ``offers``: whether disks are.  Raises GuestError.

    QEMU exits at the end of a stream that is cut.  It holds ``sender``, the other end, meanwhile:
    so that is not when its agent is killed, but when an agent shuts the stream down.
    """
    await set_capabilities(monitor)
    with ExitStack() as ends:
        ends.enter_context(memory)
        if sender is not None:
            ends.enter_context(sender)
            await monitor.lend(sender.fileno(), "getfd", {"fdname": _SENDER})
        await monitor.lend(memory.fileno(), "getfd", {"fdname": _NAME})
    if not await read_incoming(monitor, _NAME):
        raise GuestError("QEMU cannot receive the guest")
    if sender is not None:
        await monitor.execute("closefd", {"fdname": _SENDER})
    if offers:
        await monitor.execute("nbd-server-stop")
