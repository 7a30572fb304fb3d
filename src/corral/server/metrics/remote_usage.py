"""Resource usage of nodes on other hosts, read from their kubelets' ``/stats/summary`` on request.

metrics-server scrapes kubelets all the time; here a kubelet is read when a client requests metrics.
A summary serves all requests of a few seconds.  A node that does not answer in time is left out,
and requests of the next seconds do not wait for it again.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
import structlog
from starlette.types import ASGIApp

from corral.api.errors import ApiError, Unavailable
from corral.api.kind import at
from corral.api.kinds.usage import NODE_METRICS, ContainerMetrics, NodeMetrics, PodMetrics
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import Document, Key, ObjectMeta
from corral.api.quantity import NANO, Amount, Form
from corral.api.time import rfc3339
from corral.server.node_proxy.forwarding import Nodes
from corral.store import Record

FRESH_SECONDS: Final = 5.0
"""Time for which a summary serves requests; nodes sample every 15 seconds."""
RETRY_SECONDS: Final = 15.0
"""Time for which requests do not wait again for a node that did not answer."""
DEADLINE_SECONDS: Final = 2.0
"""Longest wait of a request for nodes."""
LARGEST_SUMMARY: Final = 16 << 20
"""Bytes; the summary of 1000 pods has half a megabyte."""
PATH: Final = "/stats/summary"
WINDOW: Final = "15s"
"""The window of a summary's rates, which it does not contain: the interval of a node's samples."""
_LARGEST: Final = 1 << 60

_Number = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]

log = structlog.get_logger()


class _Cpu(msgspec.Struct, rename="camel", frozen=True):
    time: datetime | None = None
    usage_nano_cores: _Number | None = None


class _Memory(msgspec.Struct, rename="camel", frozen=True):
    working_set_bytes: _Number | None = None


class _Stats(msgspec.Struct, rename="camel", frozen=True):
    """CPU and memory of a node or a container (stats/v1alpha1 NodeStats, ContainerStats)."""

    name: str = ""
    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()

    @property
    def timestamp(self) -> str:
        """The time of the sample; empty if it is missing."""
        return rfc3339(self.cpu.time) if self.cpu.time is not None else ""

    @property
    def usage(self) -> dict[str, str | int] | None:
        """The usage as metrics.k8s.io has it; None before the first rate."""
        cpu, memory = self.cpu.usage_nano_cores, self.memory.working_set_bytes
        if not self.timestamp or cpu is None or memory is None:
            return None
        return {"cpu": str(Amount(cpu)), "memory": str(Amount(memory * NANO, Form.BINARY))}


class _PodReference(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    uid: str


class _PodStats(msgspec.Struct, rename="camel", frozen=True):
    pod_ref: _PodReference
    containers: tuple[_Stats, ...] = ()


class _Summary(msgspec.Struct, frozen=True):
    node: _Stats
    pods: tuple[_PodStats, ...] = ()


class _Node:
    """The last summary of a node's kubelet; ``until`` is when it is read again."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.until = float("-inf")
        self.stats: _Stats | None = None
        self.pods: dict[str, _PodStats] = {}
        """By uid."""

    def set(self, summary: _Summary | None, until: float) -> None:
        self.until = until
        self.stats = summary.node if summary is not None else None
        self.pods = {each.pod_ref.uid: each for each in summary.pods} if summary else {}


class RemoteUsage:
    """Usage of the nodes that ``nodes`` finds a kubelet for, and of their pods."""

    def __init__(self, nodes: Nodes, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._nodes = nodes
        self._clock = clock
        self._summaries: defaultdict[str, _Node] = defaultdict(_Node)

    async def refresh(self, names: Iterable[str]) -> None:
        """Read the kubelets of these nodes that were not read just now, all at once.

        Returns after DEADLINE_SECONDS at the latest.
        """
        now = self._clock()
        self._prune(now)
        due = [name for name in set(names) if name not in self._summaries or self._is_due(name)]
        kubelets = {name: app for name in due if (app := self._nodes(name)) is not None}
        await asyncio.gather(*(self._read(name, app) for name, app in kubelets.items()))

    def of(self, kind: str, record: Record) -> PodMetrics | NodeMetrics | None:
        """Return the usage of a stored Node or Pod; ``kind`` is the resource of metrics.k8s.io.

        None if it is unknown.
        """
        if kind == NODE_METRICS.resource:
            summary = self._summaries.get(record.key.name)
            return _node_metrics(record.key, summary.stats) if summary and summary.stats else None
        pod = record.document()
        summary = self._summaries.get(at(pod, "spec", "nodeName") or "")
        stats = summary.pods.get(pod["metadata"]["uid"]) if summary is not None else None
        return _pod_metrics(record.key, pod, stats) if stats is not None else None

    def _is_due(self, name: str) -> bool:
        return self._summaries[name].until <= self._clock()

    def _prune(self, now: float) -> None:
        """Drop the nodes that nobody has requested for long."""
        for name, node in list(self._summaries.items()):
            if node.until + RETRY_SECONDS < now and not node.lock.locked():
                del self._summaries[name]

    async def _read(self, name: str, kubelet: ASGIApp) -> None:
        node = self._summaries[name]
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), node.lock:
                if not self._is_due(name):
                    return  # another request has read it meanwhile
                summary = msgspec.json.decode(await _get(kubelet, PATH), type=_Summary)
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            log.warning("no usage of a node", node=name, error=str(error) or "no answer in time")
            node.set(None, self._clock() + RETRY_SECONDS)
        else:
            node.set(summary, self._clock() + FRESH_SECONDS)


def _node_metrics(key: Key, stats: _Stats) -> NodeMetrics | None:
    usage = stats.usage
    if usage is None:
        return None
    return NodeMetrics(
        metadata=ObjectMeta(name=key.name), timestamp=stats.timestamp, window=WINDOW, usage=usage
    )


def _pod_metrics(key: Key, pod: Document, stats: _PodStats) -> PodMetrics | None:
    """Return a pod's metrics: the containers beside ``compute`` use nothing."""
    compute = next((each for each in stats.containers if each.name == COMPUTE), None)
    usage = compute.usage if compute is not None else None
    if compute is None or usage is None:
        return None
    nothing: dict[str, str | int] = {"cpu": "0", "memory": "0"}
    return PodMetrics(
        metadata=ObjectMeta(name=key.name, namespace=key.namespace),
        timestamp=compute.timestamp,
        window=WINDOW,
        containers=[
            ContainerMetrics(name=name, usage=usage if name == COMPUTE else {**nothing})
            for name in _running(pod)
        ],
    )


def _running(pod: Document) -> list[str]:
    """Return the names of containers and sidecars."""
    sidecars = (
        each
        for each in at(pod, "spec", "initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )
    return [each["name"] for each in (*(at(pod, "spec", "containers") or ()), *sidecars)]


async def _get(app: ASGIApp, path: str) -> bytes:
    """Return the body of an answer.  Raises Unavailable if it is no success, or too large."""
    status, size, chunks = 0, 0, []

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()  # the client stays until it is cancelled
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, size
        if message["type"] == "http.response.start":
            status = message["status"]
            return
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > LARGEST_SUMMARY:
            raise Unavailable(f"the answer has more than {LARGEST_SUMMARY} bytes")
        chunks.append(chunk)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"accept", b"application/json")],
        "state": {},
    }
    await app(scope, receive, send)
    body = b"".join(chunks)
    if status != 200:
        raise Unavailable(f"status {status}: {body[:200].decode(errors='replace')}")
    return body
