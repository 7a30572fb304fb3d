"""Looks at all guests of this process every 15 seconds, in one pass, and wakes none of them.

The two newest looks at each are kept; what it takes is what lies between them.  They are of one
guest and go with it: who is new, or was found by a manager that has just started, has no rates
before it was looked at twice.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import structlog
from lightkube.models.core_v1 import Pod

from corral.api.kinds.usage import NodeMetrics, PodMetrics
from corral.api.object import Key
from corral.node.hypervisor import Guest, GuestError, Usage
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling import documents
from corral.node.metrics.sampling.host import host_usage
from corral.node.metrics.sampling.shares import shares
from corral.node.metrics.sampling.window import Sample, Window, between
from corral.reconcile.objects import key_of

PERIOD_SECONDS = 15.0
"""How often it looks: as often as metrics-server asks kubelets."""

log = structlog.get_logger()


class Tenant(NamedTuple):
    """A pod that runs, and its machine."""

    pod: Pod
    machine: Machine


class SeenPod(NamedTuple):
    """The newest look at a guest; ``window`` ends there, where there was an earlier look."""

    tenant: Tenant
    guest: Guest
    sample: Sample
    window: Window | None


class SeenNode(NamedTuple):
    """The newest look at a node; ``sample`` counts the processor time that is its share."""

    sample: Sample
    window: Window | None
    pods: Mapping[Key, SeenPod]


class Sampler:
    """Looks at the guests of all nodes of this process, and at their host.

    ``host`` tells what that takes, ``clock`` the time of day in seconds since 1970.
    """

    def __init__(
        self,
        *,
        host: Callable[[], Usage] = host_usage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._clock = clock
        self._tenants: dict[str, Callable[[], Iterable[Tenant]]] = {}
        self._seen: dict[str, SeenNode] = {}
        self._pods: dict[Key, SeenPod] = {}
        self._host_nanos = 0

    def add(self, node: str, tenants: Callable[[], Iterable[Tenant]]) -> None:
        """Look at those who run on one more node, too."""
        self._tenants[node] = tenants

    async def run(self) -> None:
        """Look every 15 seconds until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(PERIOD_SECONDS)

    def look(self) -> None:
        """Take one sample of everything.

        Where the host cannot be looked at (no descriptor is left), nothing is known any more.
        """
        try:
            host = self._host()
        except OSError as error:
            log.warning("the use of the host cannot be read", error=str(error))
            self._seen, self._pods, self._host_nanos = {}, {}, 0
            return
        pods = {node: dict(self._look_at(tenants())) for node, tenants in self._tenants.items()}
        moment, clock = self._clock(), asyncio.get_running_loop().time()
        since = Usage(host.cpu_nanos - self._host_nanos, host.memory_bytes)
        taken = shares(since, {node: _together(seen.values()) for node, seen in pods.items()})
        for node, share in taken.items():
            seen = self._seen.get(node)
            earlier = seen.sample if seen is not None else None
            so_far = earlier.usage.cpu_nanos if earlier is not None else 0
            usage = Usage(so_far + share.cpu_nanos, share.memory_bytes)
            sample = Sample(moment, clock, usage)
            self._seen[node] = SeenNode(sample, between(earlier, sample), pods[node])
        self._host_nanos = host.cpu_nanos
        self._pods = {key: seen for node in pods.values() for key, seen in node.items()}

    def _look_at(self, tenants: Iterable[Tenant]) -> Iterator[tuple[Key, SeenPod]]:
        loop = asyncio.get_running_loop()
        for tenant in tenants:
            try:
                guest = tenant.machine.guest
            except GuestError:
                continue
            if (usage := guest.usage()) is None:
                continue
            key = key_of(tenant.pod)
            seen = self._pods.get(key)
            earlier = seen.sample if seen is not None and seen.guest is guest else None
            sample = Sample(self._clock(), loop.time(), usage)
            yield key, SeenPod(tenant, guest, sample, between(earlier, sample))

    # -- what is told of it

    def node(self, name: str) -> SeenNode | None:
        """The newest look at a node and its pods."""
        return self._seen.get(name)

    def pod_metrics(self, key: Key) -> PodMetrics | None:
        """What a pod takes; None where that is not known, or it has ended."""
        seen = self._pods.get(key)
        if seen is None or seen.window is None or seen.tenant.machine.facts.ended:
            return None
        return documents.pod_metrics(seen.tenant.pod, seen.window)

    def node_metrics(self, key: Key) -> NodeMetrics | None:
        """What a node takes; None where that is not known."""
        seen = self._seen.get(key.name)
        if seen is None or seen.window is None:
            return None
        return documents.node_metrics(key.name, seen.window)


def _together(pods: Iterable[SeenPod]) -> Usage:
    """What guests have taken since the look before, and what memory they hold."""
    nanos = held = 0
    for seen in pods:
        nanos += seen.window.cpu_nanos if seen.window is not None else 0
        held += seen.sample.usage.memory_bytes
    return Usage(nanos, held)
