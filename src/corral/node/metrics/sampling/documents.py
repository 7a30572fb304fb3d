"""What was seen, in the words of metrics.k8s.io, as metrics-server says it.  Pure."""

from collections.abc import Iterator

from lightkube.models.core_v1 import Pod

from corral.api.kinds.usage import ContainerMetrics, NodeMetrics, PodMetrics
from corral.api.kinds.vmi.derived import COMPUTE
from corral.api.object import ObjectMeta
from corral.api.quantity import NANO, Amount, Form
from corral.api.time import go_duration, rfc3339
from corral.node.metrics.sampling.window import Window
from corral.reconcile.objects import key_of

_NOTHING = {"cpu": "0", "memory": "0"}


def pod_metrics(pod: Pod, window: Window) -> PodMetrics:
    """What a machine's pod takes: its guest is ``compute``, and the others run nothing."""
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
