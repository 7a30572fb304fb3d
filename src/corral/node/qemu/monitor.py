"""QEMU's monitor: commands with deadlines, and the stream of events.  The one door to qemu.qmp."""

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
_HEARD = frozenset(
    {
        "BLOCK_IO_ERROR",
        "DEVICE_DELETED",
        "GUEST_PANICKED",
        "MIGRATION",
        "RESET",
        "RESUME",
        "SHUTDOWN",
        "STOP",
        "VSERPORT_CHANGE",
        "WATCHDOG",
    }
)
"""Events that somebody wants to hear of; any other could be one that a guest makes at will."""

# What it logs is told to our callers as exceptions already.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


def device_id(told: str) -> str:
    """The name of a device, which QEMU may tell with its path."""
    return told.rpartition("/")[2]


class MonitorError(GuestError):
    """The monitor refused a command, or does not answer."""


class NobodyListensError(MonitorError, HungError):
    """The monitor takes no connection, nor ever will."""


class MonitorTimeoutError(MonitorError, NoAnswerError):
    """The monitor does not answer in time."""


class Monitor:
    """A connection to one QEMU, which talks to one client at a time.

    ``events`` holds what QEMU told of its guest and nobody has taken yet; ``awaited`` the devices
    of CD-ROM drives whose guest is asked to open them: that is heard of once, as a guest may do so
    at will.
    """

    def __init__(self, client: QMPClient) -> None:
        self._client = client
        self._lending = asyncio.Lock()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.awaited: set[str] = set()
        # The library keeps every event for ever in its own listener; its filter lets none through.
        client.events.event_filter = self._note

    def _note(self, event: Event) -> bool:
        if event["event"] in _HEARD or self._is_awaited(event):
            self.events.put_nowait(event)
        return False

    def _is_awaited(self, event: Event) -> bool:
        data = event.get("data", {})
        drive = device_id(data.get("id", ""))
        if not (event["event"] == TRAY_MOVED and data.get("tray-open") and drive in self.awaited):
            return False
        self.awaited.discard(drive)
        return True

    @classmethod
    async def connect(cls, path: Path, *, seconds: float = SECONDS) -> "Monitor":
        """Connect and negotiate.  Raises MonitorError, also where nobody answers in time."""
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
        """Run a command and answer what it returns.  Raises MonitorError."""
        try:
            async with asyncio.timeout(seconds):
                return await self._client.execute(command, dict(arguments or {}) or None)
        except TimeoutError as error:
            raise MonitorTimeoutError(f"{command}: no answer within {seconds:g} s") from error
        except (OSError, QMPError, EOFError) as error:
            raise MonitorError(f"{command}: {describe(error)}") from error

    async def order(self, command: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Run a command that does something to the guest.  Raises MonitorError.

        QEMU has to answer a question first.  It would read a command that is sent while it hangs
        when it goes on, and obey it long after its sender was told that it failed.
        """
        await self.execute("query-status")
        try:
            await self.execute(command, arguments)
        except MonitorTimeoutError as error:
            raise MonitorTimeoutError(f"{error}; QEMU may still obey when it goes on") from error

    async def lend(self, descriptor: int, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run a command that takes a descriptor: ``getfd`` or ``add-fd``.  Raises MonitorError.

        QEMU takes the one that came last, so only one is on its way at a time.
        """
        async with self._lending:
            try:
                self._client.send_fd_scm(descriptor)
            except (OSError, QMPError) as error:
                raise MonitorError(f"{command}: {describe(error)}") from error
            return await self.execute(command, arguments)

    async def hung_up(self) -> None:
        """Until the connection has ended, whoever ended it."""
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()

    async def close(self) -> None:
        """Hang up; QEMU runs on."""
        with suppress(OSError, TimeoutError, QMPError, EOFError):
            async with asyncio.timeout(SECONDS):
                await self._client.disconnect()
