"""What pods and nodes take of processors and memory at present (metrics.k8s.io).

Nobody writes these: they are answers about pods and nodes, with names and labels of theirs, in the
form in which Kubernetes' metrics-server gives them.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from corral.api.kind import Column, Kind, Version, at
from corral.api.kinds.columns import value
from corral.api.object import Document, Object, Quantity, Struct, Time
from corral.api.quantity import NOTHING, amount

GROUP = "metrics.k8s.io"


class ContainerMetrics(Struct, kw_only=True):
    """What one container of a pod takes.

    name: the container.
    usage: cpu, the processors it used on average over the window, and memory, what it holds.
    """

    name: str
    usage: dict[str, Quantity] = {}


class PodMetrics(Object, kw_only=True):
    """What a pod takes.

    timestamp: when it was looked at, which is the end of the window.
    window: over how much time the use of processors is an average.
    containers: what each container takes.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "PodMetrics"

    timestamp: Time
    window: str
    containers: list[ContainerMetrics] = msgspec.field(default_factory=list)


class NodeMetrics(Object, kw_only=True):
    """What a node takes of its host.

    timestamp: when it was looked at, which is the end of the window.
    window: over how much time the use of processors is an average.
    usage: cpu, the processors it used on average over the window, and memory, what it holds.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "NodeMetrics"

    timestamp: Time
    window: str
    usage: dict[str, Quantity] = {}


def _of_pod(resource: str) -> Callable[[Document], str]:
    """What all containers of a pod take together."""

    def cell(document: Document) -> str:
        containers = at(document, "containers") or ()
        return str(sum((amount(at(one, "usage", resource)) for one in containers), NOTHING))

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
            description="over how much time the use of processors is an average",
        ),
    )


POD_METRICS = Kind(
    group=GROUP,
    plural="pods",
    versions=(Version(name="v1beta1"),),
    view=PodMetrics,
    status=False,
    columns=_columns(_of_pod),
    observes=("", "pods"),
)

NODE_METRICS = Kind(
    group=GROUP,
    plural="nodes",
    versions=(Version(name="v1beta1"),),
    view=NodeMetrics,
    namespaced=False,
    status=False,
    columns=_columns(_of_node),
    observes=("", "nodes"),
)

KINDS = (POD_METRICS, NODE_METRICS)
