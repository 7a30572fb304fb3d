"""Repair of the machine network: on each loss, and periodically while it is incomplete.

The kernel does not notify us of changes of the host's routes that matter here, nor of every route
that it removes with a link, so the way from the host is checked periodically, at growing intervals,
while something obstructs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from corral.aio import wait_at_most
from corral.node.health import Health
from corral.node.network.netlink import NetworkError

DEBOUNCE_SECONDS: Final = 0.1
"""One change causes several notifications."""
RETRY_SECONDS: Final = 5.0
"""First interval of retries, and of checks of the link to the host."""
MAX_INTERVAL_SECONDS: Final = 60.0
"""Longest interval of checks of the link to the host."""


class NetworkRepair:
    """Repairs a network.

    ``restore`` creates what is missing of it, and raises NetworkError; ``check_host_link`` creates
    what is missing of the link to the host, and returns whether something obstructs it.
    """

    def __init__(
        self,
        health: Health,
        *,
        restore: Callable[[], Awaitable[None]],
        check_host_link: Callable[[], Awaitable[bool]],
    ) -> None:
        self._health = health
        self._restore = restore
        self._check_host_link = check_host_link
        self._loss = asyncio.Event()

    def notify_loss(self) -> None:
        """Record that a part of the network was removed."""
        self._loss.set()

    async def run(self, *, obstructed: bool) -> None:
        """Repair until cancelled; ``obstructed``: the link to the host is obstructed already."""
        interval, is_incomplete = RETRY_SECONDS, False
        while True:
            await wait_at_most(self._loss, interval if is_incomplete or obstructed else None)
            if self._loss.is_set() or is_incomplete:
                await asyncio.sleep(DEBOUNCE_SECONDS)
                self._loss.clear()
                interval, is_incomplete = RETRY_SECONDS, not await self._repair()
            else:
                interval = min(2 * interval, MAX_INTERVAL_SECONDS)
            obstructed = await self._check_host_link()

    async def _repair(self) -> bool:
        """Return whether the network is complete."""
        try:
            await self._restore()
        except NetworkError as error:
            self._health.report(
                f"removed parts of the network cannot be restored: {error.full_message}"
            )
            return False
        self._health.report("")
        return True
