"""The eviction manager of the host, for all its nodes (as a kubelet's).

A pressure condition lasts until the host has had enough of the resource for five minutes, so that
evicted machines do not return to the same shortage.  One machine is evicted at a time, the next one
only if that did not suffice.
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
"""Interval of observations (a kubelet's monitoring interval)."""
TRANSITION_SECONDS = 300.0
"""Time with no threshold met after which a pressure condition ends."""

CLEANUP_SECONDS = 30.0
"""Longest end of an evicted machine before another one is evicted (a kubelet's)."""

log = structlog.get_logger()


class Pressure:
    """The pressure conditions of the host, and evictions.

    ``observe`` returns what the host has available, and may raise OSError.
    """

    def __init__(
        self,
        thresholds: Sequence[Threshold],
        observe: Callable[[], Observations],
        images: ImageStore,
        *,
        transition_seconds: float = TRANSITION_SECONDS,
    ) -> None:
        self._thresholds = thresholds
        self._observe = observe
        self._images = images
        self._transition_seconds = transition_seconds
        self._nodes: list[Evictions] = []
        self._evicted_at = -CLEANUP_SECONDS
        self._last_met: dict[str, float] = {}
        self._conditions: Mapping[str, bool] = dict.fromkeys(TAINTS, False)

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
        """Return an eviction manager of this host and its file systems, after a first observation.

        ``thresholds`` is ``--eviction-hard``; ``data`` is the directory of machines,
        ``images_directory`` that of their images.
        """
        observe = partial(readings.observe, data, images_directory)
        manager = cls(
            parse_thresholds(thresholds), observe, images, transition_seconds=transition_seconds
        )
        manager.observe_once()
        return manager

    def add(self, node: Evictions) -> None:
        """Add a node of this host, whose conditions are updated."""
        self._nodes.append(node)

    def conditions(self) -> Mapping[str, bool]:
        """Return the pressure conditions."""
        return self._conditions

    def observe_once(self) -> None:
        """Observe before the nodes register: a shortage before a restart may last."""
        with suppress(OSError):
            self._update_conditions([*shortages(self._thresholds, self._observe())])

    async def run(self) -> None:
        """Observe until cancelled; without thresholds do nothing."""
        while self._thresholds:
            try:
                await self._sync()
            except OSError as error:
                log.warning("the resources of the host cannot be read", error=str(error))
            await asyncio.sleep(PERIOD_SECONDS)

    async def _sync(self) -> None:
        short = await self._shortages()
        self._update_conditions(short)
        reclaimable = [each for each in short if each.threshold.of.is_reclaimable]
        if reclaimable and not self._is_evicting():
            await self._reclaim(reclaimable[0])

    def _is_evicting(self) -> bool:
        """Report whether an evicted machine still ends; after a timeout it blocks no others."""
        elapsed = asyncio.get_running_loop().time() - self._evicted_at
        return elapsed < CLEANUP_SECONDS and any(node.is_evicting() for node in self._nodes)

    async def _shortages(self) -> list[Shortage]:
        return [*shortages(self._thresholds, await asyncio.to_thread(self._observe))]

    def _update_conditions(self, short: Sequence[Shortage]) -> None:
        now = asyncio.get_running_loop().time()
        self._last_met |= {each.threshold.of.condition: now for each in short}
        before = self._conditions
        self._conditions = {
            name: now - self._last_met.get(name, -self._transition_seconds)
            < self._transition_seconds
            for name in TAINTS
        }
        for name, active in self._conditions.items():
            if active is not before[name]:
                log.warning("pressure", condition=name, active=active)
                for node in self._nodes:
                    node.condition_changed(name, active=active)

    async def _reclaim(self, short: Shortage) -> None:
        resource = short.threshold.of.resource
        for node in self._nodes:
            node.report_reclaim(resource)
        if short.threshold.of.condition == DISK_PRESSURE:
            await collect(self._images, self._is_short)
            while await asyncio.to_thread(self._is_short) and await self._evict_checkpoint():
                pass
            remaining = await self._shortages()
            if not any(each.threshold == short.threshold for each in remaining):
                return
        self._evict(short, resource)

    async def _evict_checkpoint(self) -> bool:
        """Remove a checkpoint of one of the nodes; report whether there was one."""
        for node in self._nodes:
            if await node.evict_checkpoint():
                return True
        return False

    def _is_short(self) -> bool:
        """Report whether the disk is still too full; checked after each that was removed."""
        return any(
            each.threshold.of.condition == DISK_PRESSURE and each.threshold.of.is_reclaimable
            for each in shortages(self._thresholds, self._observe())
        )

    def _evict(self, short: Shortage, resource: str) -> None:
        owners = {
            candidate.key: (node, candidate)
            for node in self._nodes
            for candidate in node.candidates(resource)
        }
        order = ranked((candidate for _, candidate in owners.values()), resource)
        if not order:
            log.debug("nothing to evict", resource=resource)
            return
        self._evicted_at = asyncio.get_running_loop().time()
        node, victim = owners[order[0].key]
        node.evict(victim, message(victim, short))
