"""When a network is put right: as soon as something is lost, and at times while it is not right.

What others do to the host's routes is no loss of ours, and the kernel does not tell of every route
that goes with its link, so that alone is looked at again, more and more seldom.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from corral.aio import wait_at_most
from corral.node.health import Health
from corral.node.network.netlink import NetworkError

SETTLING_SECONDS: Final = 0.1
"""Several notices tell of one change."""
RETRY_SECONDS: Final = 5.0
"""What could not be put back is tried again after this long, and what stands in the way of the host
is looked at for the first time."""
LONGEST_SECONDS: Final = 60.0
"""How long nobody looks at what stands in the way of the host, at most."""


class Healing:
    """Puts a network right.

    ``put_back`` makes all that is missing of it, and raises NetworkError; ``look_at_host`` makes
    what is missing of the way from the host, and answers whether anything stands in it.
    """

    def __init__(
        self,
        health: Health,
        *,
        put_back: Callable[[], Awaitable[None]],
        look_at_host: Callable[[], Awaitable[bool]],
    ) -> None:
        self._health = health
        self._put_back = put_back
        self._look_at_host = look_at_host
        self._lost = asyncio.Event()

    def lost(self) -> None:
        """Something of it was removed."""
        self._lost.set()

    async def run(self, *, obstructed: bool) -> None:
        """Do so until cancelled; ``obstructed``: something stands in the host's way already."""
        pause, in_vain = RETRY_SECONDS, False
        while True:
            await wait_at_most(self._lost, pause if in_vain or obstructed else None)
            if self._lost.is_set() or in_vain:
                await asyncio.sleep(SETTLING_SECONDS)
                self._lost.clear()
                pause, in_vain = RETRY_SECONDS, not await self._heal()
            else:
                pause = min(2 * pause, LONGEST_SECONDS)
            obstructed = await self._look_at_host()

    async def _heal(self) -> bool:
        """Whether all of it is there."""
        try:
            await self._put_back()
        except NetworkError as error:
            self._health.say(f"what was removed cannot be put back: {error.told}")
            return False
        self._health.say("")
        return True
