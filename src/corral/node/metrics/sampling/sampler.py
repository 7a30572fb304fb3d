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

from corral.api.kinds.usage import (
    NODE_METRICS,
    POD_METRICS,
    ContainerMetrics,
    NodeMetrics,
    PodMetrics,
)
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Key, ObjectMeta
from corral.api.quantity import NANO, Amount, Form
from corral.api.time import go_duration, rfc3339
from corral.node.hypervisor import Guest, GuestError, Usage
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling.host import host_usage, shares
from corral.node.metrics.sampling.window import Sample, Window, between
from corral.reconcile.objects import key_of

PERIOD_SECONDS = 15.0
"""How often it looks: as often as metrics-server asks kubelets."""

log = structlog.get_logger()

_NOTHING = {"cpu": "0", "memory": "0"}


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

    def observed(self) -> Mapping[str, Callable[[Key], PodMetrics | NodeMetrics | None]]:
        """What is known of pods and nodes, by the resources of metrics.k8s.io."""
        return {
            POD_METRICS.resource: self.pod_metrics,
            NODE_METRICS.resource: self.node_metrics,
        }

    def pod_metrics(self, key: Key) -> PodMetrics | None:
        """What a pod takes; None where that is not known, or it has ended."""
        seen = self._pods.get(key)
        if seen is None or seen.window is None or seen.tenant.machine.facts.ended:
            return None
        return pod_metrics(seen.tenant.pod, seen.window)

    def node_metrics(self, key: Key) -> NodeMetrics | None:
        """What a node takes; None where that is not known."""
        seen = self._seen.get(key.name)
        if seen is None or seen.window is None:
            return None
        return node_metrics(key.name, seen.window)


def _together(pods: Iterable[SeenPod]) -> Usage:
    """What guests have taken since the look before, and what memory they hold."""
    nanos = held = 0
    for seen in pods:
        nanos += seen.window.cpu_nanos if seen.window is not None else 0
        held += seen.sample.usage.memory_bytes
    return Usage(nanos, held)


def pod_metrics(pod: Pod, window: Window) -> PodMetrics:
    """What a machine's pod takes, as metrics-server says it.

    The guest is the container ``compute``, and the others run nothing.
    """
    key = key_of(pod)
    return PodMetrics(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        timestamp=rfc3339(window.after.moment),
        window=go_duration(window.seconds),
        containers=[
            ContainerMetrics(name=name, usage=_usage(window) if name == COMPUTE else {**_NOTHING})
            for name in _running(pod)
        ],
    )


def node_metrics(name: str, window: Window) -> NodeMetrics:
    """What a node takes of its host."""
    return NodeMetrics(
        metadata=ObjectMeta(name=name),
        timestamp=rfc3339(window.after.moment),
        window=go_duration(window.seconds),
        usage=_usage(window),
    )


def _running(pod: Pod) -> Iterator[str]:
    """The containers that run for as long as the pod does."""
    if pod.spec is None:
        return
    for container in pod.spec.containers:
        yield container.name
    for container in pod.spec.initContainers or ():
        if container.restartPolicy == "Always":
            yield container.name


def _usage(window: Window) -> dict[str, str | int]:
    held = window.after.usage.memory_bytes
    return {"cpu": str(Amount(window.nanocores)), "memory": str(Amount(held * NANO, Form.BINARY))}
