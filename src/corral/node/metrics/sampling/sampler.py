"""Samples the resource usage of all guests of this process every 15 seconds, without waking them.

The two newest samples of a guest give its rate.  A new guest, or one of a manager that has just
started, has no rate before its second sample.
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
"""metrics-server's default resolution."""

log = structlog.get_logger()

_NOTHING = {"cpu": "0", "memory": "0"}


class RunningPod(NamedTuple):
    """A running pod and its machine."""

    pod: Pod
    machine: Machine


class SampledPod(NamedTuple):
    """The newest sample of a guest; ``window`` ends with it, if there is an earlier sample."""

    running: RunningPod
    guest: Guest
    sample: Sample
    window: Window | None


class SampledNode(NamedTuple):
    """The newest sample of a node; ``sample`` counts its share of the host's CPU time."""

    sample: Sample
    window: Window | None
    pods: Mapping[Key, SampledPod]


class Sampler:
    """Samples the guests of all nodes of this process, and the host.

    host: returns the host's usage; clock: returns Unix seconds.
    """

    def __init__(
        self,
        *,
        host: Callable[[], Usage] = host_usage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._clock = clock
        self._running_pods: dict[str, Callable[[], Iterable[RunningPod]]] = {}
        self._seen: dict[str, SampledNode] = {}
        self._pods: dict[Key, SampledPod] = {}
        self._host_nanos = 0

    def add(self, node: str, running_pods: Callable[[], Iterable[RunningPod]]) -> None:
        """Add a node with a function that lists its running pods."""
        self._running_pods[node] = running_pods

    async def run(self) -> None:
        """Sample periodically until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(PERIOD_SECONDS)

    def sample(self) -> None:
        """Sample the host and all guests; forget all samples if the host cannot be read."""
        try:
            host = self._host()
        except OSError as error:
            log.warning("cannot read the host's resource usage", error=str(error))
            self._seen, self._pods, self._host_nanos = {}, {}, 0
            return
        pods = {
            node: dict(self._sample(running_pods()))
            for node, running_pods in self._running_pods.items()
        }
        moment, clock = self._clock(), asyncio.get_running_loop().time()
        since = Usage(host.cpu_nanos - self._host_nanos, host.memory_bytes)
        usages = shares(since, {node: _sum(seen.values()) for node, seen in pods.items()})
        for node, share in usages.items():
            seen = self._seen.get(node)
            earlier = seen.sample if seen is not None else None
            previous_nanos = earlier.usage.cpu_nanos if earlier is not None else 0
            usage = Usage(previous_nanos + share.cpu_nanos, share.memory_bytes)
            sample = Sample(moment, clock, usage)
            self._seen[node] = SampledNode(sample, between(earlier, sample), pods[node])
        self._host_nanos = host.cpu_nanos
        self._pods = {key: seen for node in pods.values() for key, seen in node.items()}

    def _sample(self, running_pods: Iterable[RunningPod]) -> Iterator[tuple[Key, SampledPod]]:
        loop = asyncio.get_running_loop()
        for running in running_pods:
            try:
                guest = running.machine.guest
            except GuestError:
                continue
            if (usage := guest.usage()) is None:
                continue
            key = key_of(running.pod)
            seen = self._pods.get(key)
            earlier = seen.sample if seen is not None and seen.guest is guest else None
            sample = Sample(self._clock(), loop.time(), usage)
            yield key, SampledPod(running, guest, sample, between(earlier, sample))

    # -- reading

    def node(self, name: str) -> SampledNode | None:
        """Return the newest sample of a node and its pods."""
        return self._seen.get(name)

    def observed(self) -> Mapping[str, Callable[[Key], PodMetrics | NodeMetrics | None]]:
        """Return the getters of pod and node metrics, by resource of metrics.k8s.io."""
        return {
            POD_METRICS.resource: self.pod_metrics,
            NODE_METRICS.resource: self.node_metrics,
        }

    def pod_metrics(self, key: Key) -> PodMetrics | None:
        """Return the usage of a pod; None if it is unknown or the pod has ended."""
        seen = self._pods.get(key)
        if seen is None or seen.window is None or seen.running.machine.facts.ended:
            return None
        return pod_metrics(seen.running.pod, seen.window)

    def node_metrics(self, key: Key) -> NodeMetrics | None:
        """Return the usage of a node; None if it is unknown."""
        seen = self._seen.get(key.name)
        if seen is None or seen.window is None:
            return None
        return node_metrics(key.name, seen.window)


def _sum(pods: Iterable[SampledPod]) -> Usage:
    """Return the CPU time of guests since their previous samples, and their memory."""
    nanos = memory_bytes = 0
    for seen in pods:
        nanos += seen.window.cpu_nanos if seen.window is not None else 0
        memory_bytes += seen.sample.usage.memory_bytes
    return Usage(nanos, memory_bytes)


def pod_metrics(pod: Pod, window: Window) -> PodMetrics:
    """Return a pod's metrics: the guest is the container ``compute``, the others use nothing."""
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
    """Return a node's metrics."""
    return NodeMetrics(
        metadata=ObjectMeta(name=name),
        timestamp=rfc3339(window.after.moment),
        window=go_duration(window.seconds),
        usage=_usage(window),
    )


def _running(pod: Pod) -> Iterator[str]:
    """Yield the names of containers and sidecars."""
    if pod.spec is None:
        return
    for container in pod.spec.containers:
        yield container.name
    for container in pod.spec.initContainers or ():
        if container.restartPolicy == "Always":
            yield container.name


def _usage(window: Window) -> dict[str, str | int]:
    memory = Amount(window.after.usage.memory_bytes * NANO, Form.BINARY)
    return {"cpu": str(Amount(window.nanocores)), "memory": str(memory)}
