"""Notices nodes that fell silent, and gives up what ran there.

A node renews its Lease.  When that stops the node and its pods are marked not ready; when it stays
away its pods are deleted and its machines fail, so that their sets replace them elsewhere.  What
counts is when this process saw the last renewal: after a pause of the process itself no node is to
blame.
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

Machine = VirtualMachineInstance

COMPONENT = "node-controller"
LEASES = "kube-node-lease"
"""The namespace of the nodes' leases."""
GRACE_SECONDS = 40.0
"""A lease not renewed for so long makes its node unknown (node-monitor-grace-period)."""
EVICTION_SECONDS = 300.0
"""So much later its pods go (the toleration that Kubernetes gives to every pod)."""
AGAIN_SECONDS = 60.0
_LATE_SECONDS = 10.0
"""A look that comes this much too late means that it was us who slept."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of nodes."""
    loop = Nodes(context)
    return Controller(
        "nodes",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.nodes, loop.leases, loop.pods, loop.machines),
    )


class Nodes:
    """When each node was last heard of."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self.leases = context.informers.of(Lease)
        self.pods = context.informers.of(Pod)
        self.machines = context.informers.of(Machine)
        self._client = context.client
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._heard: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self.pods.index("node", lambda pod: ((pod.spec and pod.spec.nodeName) or "",))
        self.machines.index("node", lambda machine: (machine.status.node_name,))
        self.nodes.handle(self._node_changed)
        self.leases.handle(self._lease_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Look at one node: heard of lately, silent, or gone for good."""
        node = self.nodes.get(key)
        if node is None:
            self._heard.pop(key.name, None)
            self._due.pop(key.name, None)
            return None
        silent = self._silence(key.name)
        if silent < GRACE_SECONDS:
            return self._again(key.name, GRACE_SECONDS - silent)
        await self._mark_unknown(node)
        await self._mark_pods(key.name)
        if silent < GRACE_SECONDS + EVICTION_SECONDS:
            return self._again(key.name, GRACE_SECONDS + EVICTION_SECONDS - silent)
        await self._evict(key.name)
        return self._again(key.name, AGAIN_SECONDS)

    def _silence(self, name: str) -> float:
        """Seconds since a node was heard of, in which it could have been heard."""
        now = self._monotonic()
        if now > self._due.get(name, now) + _LATE_SECONDS:
            self._heard[name] = now
        return now - self._heard.setdefault(name, now)

    def _again(self, name: str, seconds: float) -> Result:
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
        """Nobody knows whether the node's pods serve still: they count as not ready."""
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
        """Delete the node's pods, and fail its machines that have no other one."""
        staying = [pod for pod in self.pods.indexed("node", node) if not is_being_deleted(pod)]
        lost = [machine for machine in self.machines.indexed("node", node) if not machine.is_final]
        refused = await for_each(staying, self._delete_pod)
        refused += await for_each(lost, partial(self._fail, node))
        if refused:
            raise refused[0]

    async def _delete_pod(self, pod: Pod) -> None:
        await remove(self._client, Pod, key_of(pod), uid_of(pod))

    async def _fail(self, node: str, machine: Machine) -> None:
        transitions = [
            *msgspec.to_builtins(machine.status.phase_transition_timestamps),
            {"phase": "Failed", "phaseTransitionTimestamp": rfc3339(self._clock())},
        ]
        change = {
            "metadata": {"resourceVersion": machine.metadata.resource_version},
            "status": {
                "phase": "Failed",
                "reason": "NodeUnresponsive",
                "phaseTransitionTimestamps": transitions,
            },
        }
        try:
            await self._client.patch(Machine, machine.key, change)
        except NotFound:
            return
        text = f"virt-handler on node {node} is not responsive, marking VMI as failed"
        self._recorder.event(machine, "Normal", "NodeUnresponsive", text)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None:
            changed = new or old
            assert changed is not None
            self.queue.add(key_of(changed))
        elif is_closed(old) is not is_closed(new):
            word = "NodeNotSchedulable" if is_closed(new) else "NodeSchedulable"
            text = f"Node {key_of(new).name} status is now: {word}"
            self._recorder.event(new, "Normal", word, text)

    def _lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        if new is None or key_of(new).namespace != LEASES:
            return
        if old is None or old.spec != new.spec:
            self._heard[key_of(new).name] = self._monotonic()


def is_closed(node: Node) -> bool:
    """Whether a node takes no more pods (``kubectl cordon``)."""
    return bool(node.spec and node.spec.unschedulable)


def taint_controller(context: ControllerContext) -> Controller[Key]:
    """The controller that taints nodes under pressure, so that no pod is placed there."""
    queue = WorkQueue[Key]()
    nodes = context.informers.of(Node)

    def changed(_old: Node | None, new: Node | None) -> None:
        if new is not None and tainted(new, "") is not None:
            queue.add(key_of(new))

    async def reconcile(key: Key) -> None:
        node = nodes.get(key)
        if node is None or (taints := tainted(node, rfc3339(context.clock()))) is None:
            return
        guard = {"resourceVersion": version_of(node)}
        await context.client.patch(Node, key, {"metadata": guard, "spec": {"taints": taints}})

    nodes.handle(changed)
    return Controller("node-taints", reconcile, queue=queue, sources=(nodes,))


def tainted(node: Node, now: str) -> list[Document] | None:
    """The taints that a node is to have; None where it has them.  Others' stay as they are."""
    present: list[Any] = msgspec.to_builtins(list((node.spec and node.spec.taints) or ()))
    wanted = {each.key: each for each in pressure_taints(node)}
    ours = {each["key"] for each in present if each["key"] in TAINTS.values()}
    if ours == set(wanted):
        return None
    kept = [each for each in present if each["key"] not in ours - set(wanted)]
    added = [wanted[key] for key in wanted if key not in ours]
    return kept + [{"key": each.key, "effect": each.effect, "timeAdded": now} for each in added]
