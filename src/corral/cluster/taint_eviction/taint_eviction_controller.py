"""Taint eviction controller: evicts pods from tainted nodes, and replaces what these cannot end.

The first is Kubernetes' controller of that name, by taints of the effect NoExecute.
A pod stays for the seconds of its tolerations, counted from when this process first saw it on the
tainted node.  The node then ends its machine.  A node that is unreachable cannot:

- a VMI of which two may run fails at once, so that its replica set replaces it; its pod stays until
  the node is back and has ended the machine;
- one of which two must never run (``is_exclusive``) fails once the node has fenced itself
  (``silent_nodes``), and its pod is removed.  Where a node does not do so, it waits for the node,
  which may still run it, or for an administrator, who deletes the Node or taints it out of service.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from lightkube.models.core_v1 import Node, Pod, Taint, Toleration

from corral.api.conditions import set_condition
from corral.api.errors import NotFound
from corral.api.kinds.core.node_taints import (
    NO_EXECUTE,
    OUT_OF_SERVICE,
    ready_status,
    taints,
    tolerates,
)
from corral.api.kinds.vmi.derived import current_pod_name
from corral.api.kinds.vmi.exclusive import is_exclusive
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.cluster.taint_eviction.silent_nodes import SilentNodes
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.indexes import by_node
from corral.reconcile.objects import (
    controller_of,
    is_being_deleted,
    key_of,
    uid_of,
    version_of,
)
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance

COMPONENT: Final = "taint-eviction-controller"
_FINAL: Final = frozenset({"Succeeded", "Failed"})


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller."""
    loop = TaintEvictions(context)
    return Controller(
        "taint-eviction",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.nodes, loop.pods, loop.vmis, loop.leases),
    )


class TaintEvictions:
    """Caches, and since when pods are on tainted nodes."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.nodes = context.informers.of(Node)
        self.pods = context.informers.of(Pod)
        self.vmis = context.informers.of(VMI)
        self._silent = SilentNodes(context)
        self.leases = self._silent.leases
        self._client = context.client
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._recorder = context.recorder(COMPONENT)
        self._lifecycle_recorder = context.recorder("node-controller")
        self._since: dict[str, float] = {}
        """Times at which pods to evict, by uid, were first seen on the tainted node."""
        self.pods.index(by_node)
        self.nodes.handle(self._node_changed)
        self.pods.handle(self._pod_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Evict one pod when its time is over, or cancel its eviction."""
        pod = self.pods.get(key)
        node = self.nodes.get(Key("", _node_of(pod))) if pod is not None else None
        if pod is None or node is None or _phase(pod) in _FINAL:
            return None
        if is_being_deleted(pod):
            self._since.pop(uid_of(pod), None)
            return await self._replace(pod, node)
        seconds = tolerated_seconds(pod, taints(node, NO_EXECUTE))
        if seconds is None:
            self._cancel(pod)
            return None
        now = self._monotonic()
        remaining = self._since.setdefault(uid_of(pod), now) + seconds - now
        if remaining > 0:
            return Result(requeue_after=remaining)
        await self._evict(pod)
        return None

    def _cancel(self, pod: Pod) -> None:
        if self._since.pop(uid_of(pod), None) is not None:
            text = f"Cancelling deletion of Pod {key_of(pod)}"
            self._recorder.event(pod, "Normal", "TaintManagerEviction", text)

    async def _evict(self, pod: Pod) -> None:
        key = key_of(pod)
        text = f"Marking for deletion Pod {key}"
        self._recorder.event(pod, "Normal", "TaintManagerEviction", text)
        conditions = set_condition(
            msgspec.to_builtins(list((pod.status and pod.status.conditions) or ())),
            "DisruptionTarget",
            "True",
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
            now=rfc3339(self._clock()),
        )
        change = {
            "metadata": {"resourceVersion": version_of(pod)},
            "status": {"conditions": conditions},
        }
        try:
            await self._client.patch(Pod, key, change, subresource="status")
        except NotFound:
            return
        await remove(self._client, Pod, key, uid_of(pod))
        self._since.pop(uid_of(pod), None)

    async def _replace(self, pod: Pod, node: Node) -> Result | None:
        """Fail the VMI of a deleted pod whose node cannot end it, as soon as that is safe."""
        vmi = self._vmi_of(pod)
        if vmi is None or ready_status(node) == "True":
            return None
        given_up = any(
            each.key == OUT_OF_SERVICE for each in (node.spec and node.spec.taints) or ()
        )
        if not given_up and ready_status(node) != "Unknown":
            return None  # not ready, but reachable: it ends the machine
        if is_exclusive(vmi) and not given_up and not vmi.is_final:
            left = await self._silent.seconds_until_fenced(node)
            if left is None or left > 0:
                return None if left is None else Result(requeue_after=left)
        await self._fail(vmi, key_of(node).name)
        if given_up or is_exclusive(vmi):  # else its name is not free for the next VMI
            await remove(self._client, Pod, key_of(pod), uid_of(pod), grace_seconds=0)
        return None

    def _vmi_of(self, pod: Pod) -> VMI | None:
        """Return the VMI that runs in a pod; None for one that it migrates to, or has left."""
        owner = controller_of(pod)
        if owner is None or owner.kind != VMI.kind:
            return None
        vmi = self.vmis.get(Key(key_of(pod).namespace, owner.name))
        if vmi is None or vmi.metadata.uid != owner.uid:
            return None
        return vmi if current_pod_name(vmi) == key_of(pod).name else None

    async def _fail(self, vmi: VMI, node: str) -> None:
        if vmi.is_final:
            return
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
        self._lifecycle_recorder.event(vmi, "Normal", "NodeUnresponsive", text)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            return
        if old is None or _relevant(old) != _relevant(new):
            for pod in self.pods.indexed(by_node, key_of(new).name):
                self.queue.add(key_of(pod))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self._since.pop(uid_of(old), None)
            return
        node = self.nodes.get(Key("", _node_of(new)))
        if node is not None and taints(node, NO_EXECUTE):
            self.queue.add(key_of(new))


def tolerated_seconds(pod: Pod, present: Iterable[Taint]) -> float | None:
    """Return how long a pod stays on a node with these taints; None: for good.

    0 where a taint is not tolerated; else the least of ``tolerationSeconds``, where toleration for
    good counts for nothing beside a limited one (Kubernetes' getMinTolerationTime).
    """
    tolerations = (pod.spec and pod.spec.tolerations) or ()
    limits: list[float] = []
    for taint in present:
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        limits += _limits(matching)
    return min(limits, default=None)


def _limits(tolerations: Iterable[Toleration]) -> list[float]:
    return [
        max(0.0, float(each.tolerationSeconds))
        for each in tolerations
        if each.tolerationSeconds is not None
    ]


def _relevant(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that decide about its pods."""
    return (
        (node.spec and node.spec.taints) or (),
        ready_status(node),
    )


def _node_of(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""


def _phase(pod: Pod) -> str:
    return (pod.status and pod.status.phase) or ""
