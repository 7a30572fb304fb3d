"""QEMU's monitor (QMP): commands with deadlines, and events.  The only user of qemu.qmp."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError, Runstate

from corral.failures import describe
from corral.node.hypervisor import GuestError, HungError, NoAnswerError
from corral.node.qemu.sockets import connect

SECONDS = 10.0  # QEMU answers within milliseconds, unless it hangs

Event = Mapping[str, Any]

TRAY_MOVED = "DEVICE_TRAY_MOVED"
PROCESSOR_SEEN = "ACPI_DEVICE_OST"
"""The guest has handled a vCPU that was plugged in."""
_USED_EVENTS = frozenset(
    {
        "BLOCK_IO_ERROR",
        "BLOCK_JOB_CANCELLED",
        "BLOCK_JOB_COMPLETED",
        "BLOCK_JOB_READY",
        "DEVICE_DELETED",
        "GUEST_PANICKED",
        "MEMORY_DEVICE_SIZE_CHANGE",
        "MIGRATION",
        "RESET",
        "RESUME",
        "SHUTDOWN",
        "STOP",
        "VSERPORT_CHANGE",
        "WATCHDOG",
    }
)
"""Events that are used here; others are dropped, since a guest may cause them at will."""

# What the library logs is raised as exceptions to our callers, too.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


def device_id(device: str) -> str:
    """Return the id of a device that QEMU may name with its path."""
    return device.rpartition("/")[2]


class MonitorError(GuestError):
    """The monitor refused a command, or does not answer."""


class NobodyListensError(MonitorError, HungError):
    """The monitor's socket has no listener, nor will it ever have one again."""


class MonitorTimeoutError(MonitorError, NoAnswerError):
    """The monitor does not answer in time."""


class Monitor:
    """A connection to one QEMU, which accepts one client at a time.

    ``events`` is the queue of QEMU's events; ``awaited``: CD-ROM drives whose guest was requested
    to open them; ``awaited_processors``: how many vCPUs were plugged in that it has not seen yet.
    Those events are queued once per request, as a guest may cause them at will.
    """

    def __init__(self, client: QMPClient) -> None:
        self._client = client
        self._lending = asyncio.Lock()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.awaited: set[str] = set()
        self.awaited_processors = 0
        # The library queues every event for ever in its own listener; the filter lets none through.
        client.events.event_filter = self._filter

    def _filter(self, event: Event) -> bool:
        if event["event"] in _USED_EVENTS or self._is_awaited(event):
            self.events.put_nowait(event)
        return False

    def _is_awaited(self, event: Event) -> bool:
        data = event.get("data", {})
        if event["event"] == PROCESSOR_SEEN and self.awaited_processors > 0:
            self.awaited_processors -= 1
            return True
        drive = device_id(data.get("id", ""))
        if not (event["event"] == TRAY_MOVED and data.get("tray-open") and drive in self.awaited):
            return False
        self.awaited.discard(drive)
        return True

    @classmethod
    async def connect(cls, path: Path, *, seconds: float = SECONDS) -> "Monitor":
        """Connect and negotiate.  Raises MonitorError, also if nobody answers in time."""
        monitor = cls(QMPClient(path.parent.name))
        try:
            async with asyncio.timeout(seconds):
                await monitor._client.connect(connect(path))
        except TimeoutError as error:
            raise MonitorTimeoutError(f"no answer on {path.name} within {seconds:g} s") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NobodyListensError(f"nobody listens on {path.name}") from error
        except (OSError, QMPError, EOFError) as error:
            raise MonitorError(f"no answer on {path.name}: {describe(error)}") from error
        return monitor

    async def execute(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float = SECONDS,
    ) -> Any:
        """Run a command, and return its result.  Raises MonitorError."""
        try:
            async with asyncio.timeout(seconds):
                return await self._client.execute(command, dict(arguments or {}) or None)
        except TimeoutError as error:
            raise MonitorTimeoutError(f"{command}: no answer within {seconds:g} s") from error
        except (OSError, QMPError, EOFError) as error:
            raise MonitorError(f"{command}: {describe(error)}") from error

    async def order(self, command: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Run a command that acts on the guest.  Raises MonitorError.

        QEMU has to answer a query first: a command that is sent while it hangs would be read and
        obeyed when it runs again, long after its sender got an error.
        """
        await self.execute("query-status")
        try:
            await self.execute(command, arguments)
        except MonitorTimeoutError as error:
            raise MonitorTimeoutError(f"{error}; QEMU may still obey when it goes on") from error

    async def lend(self, descriptor: int, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run a command that takes a descriptor: ``getfd`` or ``add-fd``.  Raises MonitorError.

        QEMU uses the descriptor that came last, so one is sent at a time.
        """
        async with self._lending:
            try:
                self._client.send_fd_scm(descriptor)
            except (OSError, QMPError) as error:
                raise MonitorError(f"{command}: {describe(error)}") from error
            return await self.execute(command, arguments)

    async def hung_up(self) -> None:
        """Wait until the connection is closed, by either side."""
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()

    async def close(self) -> None:
        """Close the connection; QEMU runs on."""
        with suppress(OSError, TimeoutError, QMPError, EOFError):
            async with asyncio.timeout(SECONDS):
                await self._client.disconnect()
