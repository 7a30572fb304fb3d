"""Node lifecycle controller: detects unresponsive nodes, and evicts their pods.

A node renews its Lease. When that stops, the node and its pods are marked not ready; after a longer
time its pods are deleted and its VMIs fail, so that their owners replace them elsewhere. The time
when this process observed the last renewal counts: after a pause of the process itself no node is
blamed.
"""

from functools import partial
from typing import Any

import msgspec
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import Node, Pod

from corral.api.conditions import set_condition
from corral.api.errors import NotFound
from corral.api.kinds.core.node_pressure import TAINTS, pressure_taints
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.objects import is_being_deleted, is_ready, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance

COMPONENT = "node-controller"
LEASES = "kube-node-lease"
"""Namespace of the nodes' leases."""
GRACE_SECONDS = 40.0
"""Time without renewal after which a node is Unknown (node-monitor-grace-period)."""
EVICTION_SECONDS = 300.0
"""Further time after which its pods are deleted (Kubernetes' default toleration)."""
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
        sources=(loop.nodes, loop.leases, loop.pods, loop.vmis),
    )


class Nodes:
    """Caches, and when each node's lease was last renewed."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self.leases = context.informers.of(Lease)
        self.pods = context.informers.of(Pod)
        self.vmis = context.informers.of(VMI)
        self._client = context.client
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._renewed: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self.pods.index("node", lambda pod: ((pod.spec and pod.spec.nodeName) or "",))
        self.vmis.index("node", lambda vmi: (vmi.status.node_name,))
        self.nodes.handle(self._node_changed)
        self.leases.handle(self._lease_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Check the lease of one node, and mark or evict it."""
        node = self.nodes.get(key)
        if node is None:
            self._renewed.pop(key.name, None)
            self._due.pop(key.name, None)
            return None
        elapsed = self._seconds_since_renewal(key.name)
        if elapsed < GRACE_SECONDS:
            return self._requeue(key.name, GRACE_SECONDS - elapsed)
        await self._mark_unknown(node)
        await self._mark_pods(key.name)
        if elapsed < GRACE_SECONDS + EVICTION_SECONDS:
            return self._requeue(key.name, GRACE_SECONDS + EVICTION_SECONDS - elapsed)
        await self._evict(key.name)
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
        if any(each.type == "Ready" and each.status == "Unknown" for each in conditions):
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
        ready = [pod for pod in self.pods.indexed("node", node) if is_ready(pod)]
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

    async def _evict(self, node: str) -> None:
        """Delete the node's pods, and fail its VMIs."""
        staying = [pod for pod in self.pods.indexed("node", node) if not is_being_deleted(pod)]
        lost = [vmi for vmi in self.vmis.indexed("node", node) if not vmi.is_final]
        refused = await for_each(staying, self._delete_pod)
        refused += await for_each(lost, partial(self._fail, node))
        if refused:
            raise refused[0]

    async def _delete_pod(self, pod: Pod) -> None:
        await remove(self._client, Pod, key_of(pod), uid_of(pod))

    async def _fail(self, node: str, vmi: VMI) -> None:
        transitions = [
            *msgspec.to_builtins(vmi.status.phase_transition_timestamps),
            {"phase": "Failed", "phaseTransitionTimestamp": rfc3339(self._clock())},
        ]
        change = {
            "metadata": {"resourceVersion": vmi.metadata.resource_version},
            "status": {
                "phase": "Failed",
                "reason": "NodeUnresponsive",
                "phaseTransitionTimestamps": transitions,
            },
        }
        try:
            await self._client.patch(VMI, vmi.key, change)
        except NotFound:
            return
        text = f"virt-handler on node {node} is not responsive, marking VMI as failed"
        self._recorder.event(vmi, "Normal", "NodeUnresponsive", text)

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
        if new is None or key_of(new).namespace != LEASES:
            return
        if old is None or old.spec != new.spec:
            self._renewed[key_of(new).name] = self._monotonic()


def is_cordoned(node: Node) -> bool:
    """Report whether a node is cordoned (``kubectl cordon``)."""
    return bool(node.spec and node.spec.unschedulable)


def taint_controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that taints nodes under pressure."""
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
    desired = {each.key: each for each in pressure_taints(node)}
    ours = {each["key"] for each in present if each["key"] in TAINTS.values()}
    if ours == set(desired):
        return None
    kept = [each for each in present if each["key"] not in ours - set(desired)]
    added = [desired[key] for key in desired if key not in ours]
    return kept + [{"key": each.key, "effect": each.effect, "timeAdded": now} for each in added]
