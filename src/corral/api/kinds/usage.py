"""PodMetrics and NodeMetrics: present use of CPU and memory (metrics.k8s.io).

They are not stored: each read computes them for pods and nodes, whose names and labels they have,
as Kubernetes' metrics-server does.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from corral.api.kind import Column, Kind, Version, at
from corral.api.kinds.columns import value
from corral.api.object import Document, Object, Quantity, Struct, Time
from corral.api.quantity import ZERO, amount

GROUP = "metrics.k8s.io"


class ContainerMetrics(Struct, kw_only=True):
    """Usage of one container of a pod.

    name: the container.
    usage: cpu, the average number of processors over the window, and memory, its working set.
    """

    name: str
    usage: dict[str, Quantity] = {}


class PodMetrics(Object, kw_only=True):
    """Usage of a pod.

    timestamp: end of the window.
    window: time over which CPU usage is averaged.
    containers: usage of each container.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "PodMetrics"

    timestamp: Time
    window: str
    containers: list[ContainerMetrics] = msgspec.field(default_factory=list)


class NodeMetrics(Object, kw_only=True):
    """Usage of a node.

    timestamp: end of the window.
    window: time over which CPU usage is averaged.
    usage: cpu, the average number of processors over the window, and memory, its working set.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "NodeMetrics"

    timestamp: Time
    window: str
    usage: dict[str, Quantity] = {}


def _of_pod(resource: str) -> Callable[[Document], str]:
    """Return a function that sums the usage of a pod's containers."""

    def cell(document: Document) -> str:
        containers = at(document, "containers") or ()
        return str(sum((amount(at(one, "usage", resource)) for one in containers), ZERO))

    return cell


def _of_node(resource: str) -> Callable[[Document], str]:
    return lambda document: str(amount(at(document, "usage", resource)))


def _columns(cell: Callable[[str], Callable[[Document], str]]) -> tuple[Column, ...]:
    return (
        Column(name="cpu", format="quantity", cell=cell("cpu"), description="processors"),
        Column(name="memory", format="quantity", cell=cell("memory"), description="bytes"),
        Column(
            name="Window",
            format="duration",
            cell=value("window"),
            description="time over which CPU usage is averaged",
        ),
    )


POD_METRICS = Kind(
    group=GROUP,
    plural="pods",
    versions=(Version(name="v1beta1"),),
    view=PodMetrics,
    status=False,
    columns=_columns(_of_pod),
    measured_kind=("", "pods"),
)

NODE_METRICS = Kind(
    group=GROUP,
    plural="nodes",
    versions=(Version(name="v1beta1"),),
    view=NodeMetrics,
    namespaced=False,
    status=False,
    columns=_columns(_of_node),
    measured_kind=("", "nodes"),
)

KINDS = (POD_METRICS, NODE_METRICS)
