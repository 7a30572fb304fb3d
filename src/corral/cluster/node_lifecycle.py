"""Node lifecycle controller: detects unresponsive nodes, and taints nodes by their conditions.

A node renews its Lease. When that stops, the node and its pods are marked not ready, and the taints
that follow have ``taint_eviction`` evict its pods. The time when this process observed the last
renewal counts: after a pause of the process itself no node is blamed.
"""

from typing import Any

import msgspec
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Node, Pod

from corral.api.conditions import set_condition
from corral.api.errors import NotFound
from corral.api.kinds.core import node_lease
from corral.api.kinds.core.node_taints import CONDITION_TAINTS, condition_taints, ready_status
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.indexes import by_node
from corral.reconcile.objects import is_ready, key_of, version_of
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "node-controller"
REPEAT_SECONDS = 60.0
_LATE_SECONDS = 10.0
"""A sync later than due by this much means that this process was paused."""


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller of nodes."""
    loop = Nodes(context)
    return Controller(
        "nodes",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.nodes, loop.leases, loop.pods),
    )


class Nodes:
    """Caches, and when each node's lease was last renewed."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self.leases = context.informers.of(Lease)
        self.pods = context.informers.of(Pod)
        self._client = context.client
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._renewed: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self.pods.index(by_node)
        self.nodes.handle(self._node_changed)
        self.leases.handle(self._lease_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Check the lease of one node, and mark the node and its pods."""
        node = self.nodes.get(key)
        if node is None:
            self._renewed.pop(key.name, None)
            self._due.pop(key.name, None)
            return None
        elapsed = self._seconds_since_renewal(key.name)
        if elapsed < node_lease.SECONDS:
            return self._requeue(key.name, node_lease.SECONDS - elapsed)
        await self._mark_unknown(node)
        await self._mark_pods(key.name)
        return self._requeue(key.name, REPEAT_SECONDS)

    def _seconds_since_renewal(self, name: str) -> float:
        """Return seconds since the last renewal, without a pause of this process."""
        now = self._monotonic()
        if now > self._due.get(name, now) + _LATE_SECONDS:
            self._renewed[name] = now
        return now - self._renewed.setdefault(name, now)

    def _requeue(self, name: str, seconds: float) -> Result:
        self._due[name] = self._monotonic() + seconds
        return Result(requeue_after=seconds)

    async def _mark_unknown(self, node: Node) -> None:
        conditions = (node.status and node.status.conditions) or ()
        if ready_status(node) == "Unknown":
            return
        changed = set_condition(
            msgspec.to_builtins(list(conditions)),
            "Ready",
            "Unknown",
            reason="NodeStatusUnknown",
            message="Kubelet stopped posting node status.",
            now=rfc3339(self._clock()),
        )
        key = key_of(node)
        change = {"status": {"conditions": changed}}
        await self._client.patch(Node, key, change, subresource="status")
        text = f"Node {key.name} status is now: NodeNotReady"
        self._recorder.event(node, "Normal", "NodeNotReady", text)

    async def _mark_pods(self, node: str) -> None:
        """Set the node's pods to not ready: whether they still serve is unknown."""
        ready = [pod for pod in self.pods.indexed(by_node, node) if is_ready(pod)]
        refused = await for_each(ready, self._mark_pod)
        if refused:
            raise refused[0]

    async def _mark_pod(self, pod: Pod) -> None:
        assert pod.status is not None
        now = rfc3339(self._clock())
        old = msgspec.to_builtins(list(pod.status.conditions or ()))
        change = {
            "metadata": {"resourceVersion": version_of(pod)},
            "status": {"conditions": set_condition(old, "Ready", "False", now=now)},
        }
        try:
            await self._client.patch(Pod, key_of(pod), change, subresource="status")
        except NotFound:
            return
        self._recorder.event(pod, "Warning", "NodeNotReady", "Node is not ready")

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None:
            changed = new or old
            assert changed is not None
            self.queue.add(key_of(changed))
        elif is_cordoned(old) is not is_cordoned(new):
            reason = "NodeNotSchedulable" if is_cordoned(new) else "NodeSchedulable"
            text = f"Node {key_of(new).name} status is now: {reason}"
            self._recorder.event(new, "Normal", reason, text)

    def _lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        if new is None or key_of(new).namespace != node_lease.NAMESPACE:
            return
        if old is None or old.spec != new.spec:
            self._renewed[key_of(new).name] = self._monotonic()


def is_cordoned(node: Node) -> bool:
    """Report whether a node is cordoned (``kubectl cordon``)."""
    return bool(node.spec and node.spec.unschedulable)


def taint_controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that taints nodes by their conditions."""
    queue = WorkQueue[Key]()
    nodes = context.informers.of(Node)

    def changed(_old: Node | None, new: Node | None) -> None:
        if new is not None and desired_taints(new, "") is not None:
            queue.add(key_of(new))

    async def reconcile(key: Key) -> None:
        node = nodes.get(key)
        if node is None or (taints := desired_taints(node, rfc3339(context.clock()))) is None:
            return
        guard = {"resourceVersion": version_of(node)}
        await context.client.patch(Node, key, {"metadata": guard, "spec": {"taints": taints}})

    nodes.handle(changed)
    return Controller("node-taints", reconcile, queue=queue, sources=(nodes,))


def desired_taints(node: Node, now: str) -> list[Document] | None:
    """Return the desired taints of a node; None if they are present. Others' are kept."""
    present: list[Any] = msgspec.to_builtins(list((node.spec and node.spec.taints) or ()))
    desired = [(each.key, each.effect) for each in condition_taints(node)]
    ours = {_identity(each) for each in present if each["key"] in CONDITION_TAINTS}
    if ours == set(desired):
        return None
    kept = [each for each in present if _identity(each) not in ours - set(desired)]
    added = [each for each in desired if each not in ours]
    return kept + [{"key": key, "effect": effect, "timeAdded": now} for key, effect in added]


def _identity(taint: Document) -> tuple[str, str]:
    return taint["key"], taint["effect"]
