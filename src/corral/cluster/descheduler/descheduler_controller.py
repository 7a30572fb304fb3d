"""The loop of the descheduler: a cycle at each interval while there is a policy.

Without the ConfigMap of the policy it watches that one name and does nothing.  What it finds wrong,
and what a dry run would evict, are Events of the ConfigMap.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from lightkube.models.core_v1 import ConfigMap, Pod

from corral.api import node_fit
from corral.api.errors import ApiError, TooManyRequests
from corral.api.kinds.kubevirt.migration import (
    DESCHEDULER,
    DESCHEDULER_NAME,
    EVACUATION_TRIGGERED,
    EVICTION_SOURCE,
    REQUESTED_BY,
)
from corral.api.object import Document, Key
from corral.cluster.descheduler.caches import Caches
from corral.cluster.descheduler.default_evictor import DefaultEvictor
from corral.cluster.descheduler.descheduler_metrics import (
    BACKGROUND,
    ERROR,
    SUCCESS,
    DeschedulerMetrics,
)
from corral.cluster.descheduler.handle import Handle
from corral.cluster.descheduler.limits import Limits
from corral.cluster.descheduler.policy import InvalidPolicy, Plugin, Policy, Profile
from corral.cluster.descheduler.settings import CONFIG_MAP, Settings, read
from corral.cluster.descheduler.snapshot import PodInfo, Snapshot
from corral.cluster.descheduler.strategies import BALANCE, DESCHEDULE
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import annotations_of, key_of, labels_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT: Final = "sigs.k8s.io.descheduler"
START_SECONDS: Final = 60.0
"""Delay of the first cycle of a process: nodes and machines report again after its start."""

log = structlog.get_logger()


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller; its only key is the ConfigMap."""
    loop = Descheduler(context)
    return Controller(
        "descheduler",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.config_maps, *loop.caches.sources),
        workers=1,
        families=loop.metrics.families,
    )


@dataclass(frozen=True, slots=True)
class Cycle:
    """One pass over all plugins."""

    config_map: ConfigMap
    settings: Settings
    snapshot: Snapshot
    limits: Limits

    @property
    def policy(self) -> Policy:
        return self.settings.policy


class Descheduler:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        fields = f"metadata.name={CONFIG_MAP.name}"
        self.config_maps = context.informers.of(ConfigMap, fields=fields)
        self.caches = Caches(context)
        self.metrics = DeschedulerMetrics()
        self._client = context.client
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._reported = ""
        """Version of the ConfigMap that was reported."""
        self.config_maps.handle(self._changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Run a cycle; a policy that is not valid waits for its change."""
        config_map = self.config_maps.get(key)
        if config_map is None:
            return None
        try:
            settings = read(config_map)
        except InvalidPolicy as error:
            self._warn(config_map, "InvalidPolicy", f"{error}; nothing is evicted")
            return None
        self._report(config_map, settings)
        try:
            await self._run(config_map, settings)
        except InvalidPolicy as error:
            self._warn(config_map, "InvalidPolicy", f"{error}; nothing is evicted")
        return Result(requeue_after=settings.interval_seconds)

    async def _run(self, config_map: ConfigMap, settings: Settings) -> None:
        """Run all plugins: those that check single pods first, in all profiles."""
        started, policy = self._monotonic(), settings.policy
        snapshot = Snapshot(self.caches.nodes.items(), self.caches.lookups())
        for _ in snapshot.observe(list(self.caches.pods.items())):
            await _turn()
        nodes = _nodes(snapshot, policy)
        if len(nodes) < 2:
            text = f"Skipping descheduling cycle: requires >=2 ready nodes, found {len(nodes)}"
            self._recorder.event(config_map, "Normal", "TooFewNodes", text)
            return
        cycle = Cycle(config_map, settings, snapshot, self._limits(policy))
        handles = [await self._handle(profile, snapshot, nodes) for profile in policy.profiles]
        for point in (DESCHEDULE, BALANCE):
            for profile, handle in zip(policy.profiles, handles, strict=True):
                for plugin in getattr(profile, point):
                    if cycle.limits.is_exhausted:
                        break
                    await self._run_plugin(cycle, profile, plugin, handle)
        self.metrics.loop.observe(self._monotonic() - started)

    async def _handle(self, profile: Profile, snapshot: Snapshot, nodes: tuple[str, ...]) -> Handle:
        now = self._clock()
        inputs = await self.caches.inputs(profile.evictor, nodes, now)
        return Handle(snapshot, DefaultEvictor(profile.evictor, snapshot, inputs), nodes, now)

    def _limits(self, policy: Policy) -> Limits:
        """Return the limits of a cycle, with VMIs that have not left since an earlier one."""
        limits = Limits(policy)
        for vmi in self.caches.vmis.items():
            leaves = vmi.status.evacuation_node_name
            if leaves and annotations_of(vmi).get(EVICTION_SOURCE) == DESCHEDULER:
                limits.count((leaves, vmi.metadata.namespace))
        return limits

    async def _run_plugin(
        self, cycle: Cycle, profile: Profile, plugin: Plugin, handle: Handle
    ) -> None:
        started = self._monotonic()
        for one in plugin.strategy.evictions(plugin.arguments, handle):
            if one is not None:
                await self._evict(cycle, profile, plugin, one)
            if cycle.limits.is_exhausted:
                break
            await _turn()
        taken = self._monotonic() - started
        self.metrics.strategies[plugin.name, profile.name].observe(taken)

    async def _evict(self, cycle: Cycle, profile: Profile, plugin: Plugin, one: PodInfo) -> None:
        """Evict a pod if the limits allow it."""
        node = one.node
        place = (node, one.key.namespace)
        result = why = ""
        if not (why := cycle.limits.exceeded(place)):
            result, why = await self._request(cycle, profile, plugin, one)
        if not cycle.settings.dry_run:
            self.metrics.count(
                one, node, result=result or why, strategy=plugin.name, profile=profile.name
            )
        if result not in (SUCCESS, BACKGROUND):
            self._report_failure(cycle, one, why)
            return
        cycle.limits.count(place)
        cycle.snapshot.evict(one)
        self._report_eviction(cycle, profile, plugin, one, node)

    async def _request(
        self, cycle: Cycle, profile: Profile, plugin: Plugin, one: PodInfo
    ) -> tuple[str, str]:
        """Request an eviction; return its result, and why it failed."""
        if cycle.settings.dry_run:
            return SUCCESS, ""
        options: Document = {"preconditions": {"uid": uid_of(one.pod)}}
        if cycle.policy.grace_seconds is not None:
            options["gracePeriodSeconds"] = cycle.policy.grace_seconds
        key = one.key
        eviction: Document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "annotations": {
                    REQUESTED_BY: DESCHEDULER_NAME,
                    "reason": f"triggered by {profile.name}/{plugin.name}",
                },
            },
            "deleteOptions": options,
        }
        try:
            await self._client.post(Pod, key, "eviction", eviction)
        except TooManyRequests as error:
            return (BACKGROUND, "") if EVACUATION_TRIGGERED in str(error) else (ERROR, str(error))
        except ApiError as error:
            return ERROR, str(error)
        return SUCCESS, ""

    # -- reporting ----------------------------------------------------------------------------

    def _report(self, config_map: ConfigMap, settings: Settings) -> None:
        """Report a new policy, and what of it has no effect."""
        if self._reported == version_of(config_map):
            return
        self._reported = version_of(config_map)
        for text in settings.policy.ignored:
            self._warn(config_map, "NoEffect", text)
        names = [
            plugin.name
            for profile in settings.policy.profiles
            for plugin in (*profile.deschedule, *profile.balance)
        ]
        text = f"Every {settings.interval_seconds:g} s: {', '.join(names) or 'no plugin'}"
        dry = " (dry run)" if settings.dry_run else ""
        self._recorder.event(config_map, "Normal", "PolicyLoaded", text + dry)

    def _report_eviction(
        self, cycle: Cycle, profile: Profile, plugin: Plugin, one: PodInfo, node: str
    ) -> None:
        dry = cycle.settings.dry_run
        log.info(
            "would evict pod" if dry else "evicted pod",
            pod=str(one.key),
            node=node,
            strategy=plugin.name,
            profile=profile.name,
        )
        if dry:
            text = f"Pod {one.key} would be evicted from node {node}: {plugin.name}"
            self._recorder.event(cycle.config_map, "Normal", "DryRun", text)
            return
        text = f"pod eviction from {node} node by {DESCHEDULER_NAME}"
        for involved in (one.pod, one.vmi):
            if involved is not None:
                self._recorder.event(involved, "Normal", plugin.name, text, action="Descheduled")

    def _report_failure(self, cycle: Cycle, one: PodInfo, why: str) -> None:
        log.debug("eviction failed", pod=str(one.key), node=one.node, error=why)
        if cycle.policy.reports_failures:
            text = f"pod eviction from {one.node} node by {DESCHEDULER_NAME} failed: {why}"
            self._recorder.event(one.pod, "Warning", "EvictionFailed", text, action="Descheduled")

    def _warn(self, config_map: ConfigMap, reason: str, text: str) -> None:
        log.warning("descheduler", reason=reason, error=text)
        self._recorder.event(config_map, "Warning", reason, text)

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is None or key_of(new) != CONFIG_MAP:
            return
        if not self.config_maps.has_synced:
            self.queue.add_after(CONFIG_MAP, START_SECONDS)
        elif old is None or _fingerprint(old) != _fingerprint(new):
            self.queue.add(CONFIG_MAP)


async def _turn() -> None:
    """Let others have their turn: the API server renews Leases in the same event loop."""
    await asyncio.sleep(0)


def _fingerprint(config_map: ConfigMap) -> tuple[object, ...]:
    """Return what of a ConfigMap counts."""
    return config_map.data, annotations_of(config_map)


def _nodes(snapshot: Snapshot, policy: Policy) -> tuple[str, ...]:
    """Return the names of the ready nodes that a policy handles, sorted."""
    return tuple(
        name
        for name in snapshot.names()
        if node_fit.is_ready(snapshot.node(name))
        and policy.node_selector.matches(labels_of(snapshot.node(name)))
    )
