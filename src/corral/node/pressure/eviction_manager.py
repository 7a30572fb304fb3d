"""The loop that looks at the host, once for all nodes that it plays (a kubelet's eviction manager).

A pressure lasts until the host has had enough for five minutes: what was evicted does not come
back to the same shortage.  One machine goes at a time, and the next one only where that was not
enough.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

import structlog

from corral.api.kinds.core.node_pressure import DISK_PRESSURE, TAINTS
from corral.node.images.garbage_collection import collect
from corral.node.images.store import ImageStore
from corral.node.pressure import readings
from corral.node.pressure.evictions import Evictions
from corral.node.pressure.ranking import message, ranked
from corral.node.pressure.thresholds import (
    Observations,
    Shortage,
    Threshold,
    parse_thresholds,
    shortages,
)

PERIOD_SECONDS = 10.0
"""How often the host is looked at (a kubelet's monitoring interval)."""
TRANSITION_SECONDS = 300.0
"""How long there has to be enough before a pressure is over."""

CLEANUP_SECONDS = 30.0
"""How long a machine that was told to go is waited for before another one has to (a kubelet's)."""

log = structlog.get_logger()


class Pressure:
    """What the host is short of, and who may have to go.

    ``look`` tells what the host has left, and may raise OSError.
    """

    def __init__(
        self,
        thresholds: Sequence[Threshold],
        look: Callable[[], Observations],
        images: ImageStore,
        *,
        transition_seconds: float = TRANSITION_SECONDS,
    ) -> None:
        self._thresholds = thresholds
        self._look = look
        self._images = images
        self._transition_seconds = transition_seconds
        self._nodes: list[Evictions] = []
        self._evicted_at = -CLEANUP_SECONDS
        self._met_at: dict[str, float] = {}
        self._holds: Mapping[str, bool] = dict.fromkeys(TAINTS, False)

    @classmethod
    def of_host(
        cls,
        thresholds: str,
        data: Path,
        images_directory: Path,
        images: ImageStore,
        *,
        transition_seconds: float,
    ) -> Self:
        """Looks at the host and its file systems, and has looked once.

        ``thresholds`` are ``--eviction-hard``; ``data`` is the directory of machines,
        ``images_directory`` that of their images.
        """
        observe = partial(readings.look, data, images_directory)
        made = cls(
            parse_thresholds(thresholds), observe, images, transition_seconds=transition_seconds
        )
        made.begin()
        return made

    def add(self, node: Evictions) -> None:
        """Let one more node of this host say what the host is short of."""
        self._nodes.append(node)

    def holds(self) -> Mapping[str, bool]:
        """Which pressures there are."""
        return self._holds

    def begin(self) -> None:
        """Look once before the nodes say anything: what was short before a restart may be still."""
        with suppress(OSError):
            self._note([*shortages(self._thresholds, self._look())])

    async def run(self) -> None:
        """Look until cancelled; without thresholds there is nothing to look for."""
        while self._thresholds:
            try:
                await self._step()
            except OSError as error:
                log.warning("what the host has left cannot be read", error=str(error))
            await asyncio.sleep(PERIOD_SECONDS)

    async def _step(self) -> None:
        short = await self._shortages()
        self._note(short)
        ours = [each for each in short if each.threshold.of.is_ours]
        if ours and not self._is_busy():
            await self._reclaim(ours[0])

    def _is_busy(self) -> bool:
        """Whether a machine still ends; one that does not end keeps no other from going."""
        waited = asyncio.get_running_loop().time() - self._evicted_at
        return waited < CLEANUP_SECONDS and any(node.is_busy() for node in self._nodes)

    async def _shortages(self) -> list[Shortage]:
        return [*shortages(self._thresholds, await asyncio.to_thread(self._look))]

    def _note(self, short: Sequence[Shortage]) -> None:
        now = asyncio.get_running_loop().time()
        self._met_at |= {each.threshold.of.condition: now for each in short}
        before = self._holds
        self._holds = {
            name: now - self._met_at.get(name, -self._transition_seconds) < self._transition_seconds
            for name in TAINTS
        }
        for name, holds in self._holds.items():
            if holds is not before[name]:
                log.warning("pressure", condition=name, holds=holds)
                for node in self._nodes:
                    node.turned(name, holds=holds)

    async def _reclaim(self, short: Shortage) -> None:
        resource = short.threshold.of.resource
        for node in self._nodes:
            node.attempt(resource)
        if short.threshold.of.condition == DISK_PRESSURE:
            await collect(self._images, self._is_short)
            still = await self._shortages()
            if not any(each.threshold == short.threshold for each in still):
                return
        self._evict(short, resource)

    def _is_short(self) -> bool:
        """Whether the disk is too full as of now; asked between two images."""
        return any(
            each.threshold.of.condition == DISK_PRESSURE and each.threshold.of.is_ours
            for each in shortages(self._thresholds, self._look())
        )

    def _evict(self, short: Shortage, resource: str) -> None:
        of_node = {
            candidate.key: (node, candidate)
            for node in self._nodes
            for candidate in node.candidates(resource)
        }
        order = ranked((candidate for _, candidate in of_node.values()), resource)
        if not order:
            log.debug("nothing to evict", resource=resource)
            return
        self._evicted_at = asyncio.get_running_loop().time()
        node, victim = of_node[order[0].key]
        node.evict(victim, message(victim, short))
