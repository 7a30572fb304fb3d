"""The kubelet's endpoints for resource usage: ``/metrics/resource`` and ``/stats/summary``.

metrics-server scrapes the first; the second is JSON.  Of a machine's pod they list the container
``compute`` only, which is the guest; the others run nothing.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from lightkube.models.core_v1 import Pod
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Document
from corral.api.time import rfc3339
from corral.metrics import Family, Registry, counter, gauge
from corral.node.metrics.sampling.sampler import SampledPod, Sampler
from corral.node.metrics.sampling.window import Sample, Window
from corral.reconcile.objects import key_of, uid_of


class ResourceEndpoints:
    """Serves the samples of one node."""

    def __init__(self, node: str, sampler: Sampler) -> None:
        self._node = node
        self._sampler = sampler
        self._registry = Registry(resource=self._families)

    def routes(self) -> list[Route]:
        return [
            Route("/metrics/resource", self._resource),
            Route("/stats/summary", self._summary),
        ]

    async def _resource(self, request: Request) -> Response:
        body, media_type = await self._registry.text(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    async def _summary(self, _request: Request) -> Response:
        seen = self._sampler.node(self._node)
        node: Document = {"nodeName": self._node}
        if seen is not None:
            node |= _stats(seen.sample, seen.window)
        return JSONResponse({"node": node, "pods": [_pod(one) for one in self._pods()]})

    def _pods(self) -> Iterator[SampledPod]:
        seen = self._sampler.node(self._node)
        for one in seen.pods.values() if seen is not None else ():
            if not one.running.machine.facts.ended:
                yield one

    async def _families(self) -> Iterable[Family]:
        """Return the kubelet's families; each value has the timestamp of its sample."""
        node_cpu = counter(
            "node_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the node in core-seconds",
        )
        node_memory = gauge(
            "node_memory_working_set_bytes", "Current working set of the node in bytes"
        )
        seen = self._sampler.node(self._node)
        if seen is not None:
            _add(node_cpu, node_memory, seen.sample, {})
        failed = "1 if there was an error while getting container metrics, 0 otherwise"
        errors = (gauge(name, failed, 0) for name in ("scrape_error", "resource_scrape_error"))
        return [node_cpu, node_memory, *self._pod_families(), *errors]

    def _pod_families(self) -> Iterable[Family]:
        container_cpu = counter(
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the container in core-seconds",
        )
        container_memory = gauge(
            "container_memory_working_set_bytes", "Current working set of the container in bytes"
        )
        started = gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
        )
        pod_cpu = counter(
            "pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds"
        )
        pod_memory = gauge(
            "pod_memory_working_set_bytes", "Current working set of the pod in bytes"
        )
        for one in self._pods():
            key = key_of(one.running.pod)
            pod = {"namespace": key.namespace, "pod": key.name}
            container = {"container": COMPUTE, **pod}
            _add(container_cpu, container_memory, one.sample, container)
            _add(pod_cpu, pod_memory, one.sample, pod)
            if (moment := _start(one.running.pod)) is not None:
                started.add(moment.timestamp(), container)
        return container_cpu, container_memory, started, pod_cpu, pod_memory


def _add(cpu: Family, memory: Family, sample: Sample, labels: dict[str, str]) -> None:
    moment, usage = sample.moment, sample.usage
    cpu.add_sample(f"{cpu.name}_total", labels, usage.cpu_nanos / 1e9, moment)
    memory.add_sample(memory.name, labels, usage.memory_bytes, moment)


def _pod(seen: SampledPod) -> Document:
    """A pod in the kubelet's summary (stats/v1alpha1 PodStats)."""
    pod = seen.running.pod
    key = key_of(pod)
    stats = _stats(seen.sample, seen.window)
    start = _start(pod)
    started = {"startTime": rfc3339(start)} if start is not None else {}
    return {
        "podRef": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
        **started,
        "containers": [{"name": COMPUTE, **started, **stats}],
        **stats,
    }


def _stats(sample: Sample, window: Window | None) -> Document:
    """Return cumulative usage, and the rate if there is an earlier sample."""
    time = rfc3339(sample.moment)
    cpu: Document = {"time": time, "usageCoreNanoSeconds": sample.usage.cpu_nanos}
    if window is not None:
        cpu["usageNanoCores"] = window.nanocores
    used = sample.usage.memory_bytes
    memory = {"time": time, "usageBytes": used, "workingSetBytes": used, "rssBytes": used}
    return {"cpu": cpu, "memory": memory}


def _start(pod: Pod) -> datetime | None:
    """Return the start time of the container ``compute``, if it runs."""
    statuses = (pod.status is not None and pod.status.containerStatuses) or ()
    for one in statuses:
        if one.name == COMPUTE and one.state is not None and one.state.running is not None:
            return one.state.running.startedAt
    return None
