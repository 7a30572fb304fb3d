"""The space that a storage has left for new volumes, measured now and then for its Nodes.

The scheduler reads it from a Node's annotation, as kube-scheduler reads CSIStorageCapacity.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from corral.aio import wait_at_most
from corral.api.kinds.storage.common import STORAGE_CAPACITY
from corral.failures import describe
from corral.node.storage.storage import Storage

INTERVAL_SECONDS: Final = 60.0
"""Between measurements while no volume changes: other programs use the file system, too."""
PAUSE_SECONDS: Final = 1.0
"""Between measurements at least: each stats all volumes."""
STEP: Final = 64 << 20
"""The granularity of the capacity, in bytes.

It is written again once less is left than that, or two steps more: other programs' small writes at
a multiple of a step would have the Node written each minute.
"""

log = structlog.get_logger()


class FreeCapacity:
    """Measures a storage; ``publish`` writes its Nodes, with ``annotation``."""

    def __init__(
        self,
        storage: Storage,
        publish: Callable[[], None],
        annotation: str = STORAGE_CAPACITY,
    ) -> None:
        self._storage = storage
        self._annotation = annotation
        self._publish = publish
        self._changed = asyncio.Event()
        self._bytes: int | None = None

    def annotations(self) -> Mapping[str, str]:
        """Return the annotation of a Node; none before the first measurement."""
        return {} if self._bytes is None else {self._annotation: str(self._bytes)}

    def changed(self) -> None:
        """Measure soon: a volume was created, resized or removed."""
        self._changed.set()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            self._changed.clear()
            await self._measure()
            await asyncio.sleep(PAUSE_SECONDS)
            await wait_at_most(self._changed, INTERVAL_SECONDS)

    async def _measure(self) -> None:
        try:
            left = await asyncio.to_thread(self._storage.unallocated)
        except OSError as error:
            log.warning("cannot measure the storage", error=describe(error))
            return
        left = max(0, left)
        if self._bytes is None or not self._bytes <= left < self._bytes + 2 * STEP:
            self._bytes = left // STEP * STEP
            self._publish()
