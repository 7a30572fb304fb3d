"""Pod garbage collector: removes pods of nodes that do not exist.

A deleted pod is removed when its node reports that it has ended. Without the node nobody would
report that, and the pod's VMI would never be replaced.

A Node that was unreachable when it was deleted is dead: its pods are removed at once. One that was
alive registers again, or has just died: its pods wait.
"""

from lightkube.models.core_v1 import Node, Pod

from corral.api.errors import NotFound
from corral.api.kinds.core.node_taints import ready_status
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.indexes import by_node
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

QUARANTINE_SECONDS = 40.0
"""Time for which a node that was alive must be missing (Kubernetes' pod GC)."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = LostPods(context)
    return Controller("podgc", loop.reconcile, queue=loop.queue, sources=(loop.pods, loop.nodes))


class LostPods:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.pods = context.informers.of(Pod)
        self.nodes = context.informers.of(Node)
        self._client = context.client
        self._monotonic = context.monotonic
        self._missing: dict[str, float] = {}
        """Times at which nodes, by name, were first missed."""
        self.pods.index(by_node)
        self.pods.handle(self._pod_changed)
        self.nodes.handle(self._node_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Remove a pod whose node is missing, or that is deleted before it has a node."""
        pod = self.pods.get(key)
        if pod is None:
            return None
        node = _node_of(pod)
        if not node:
            if is_being_deleted(pod):
                await self._remove(pod)
            return None
        if self.nodes.get(Key("", node)) is not None:
            self._missing.pop(node, None)
            return None
        now = self._monotonic()
        remaining = self._missing.setdefault(node, now) + QUARANTINE_SECONDS - now
        if remaining > 0:
            return Result(requeue_after=remaining)
        if await self._exists(node):
            return Result(requeue_after=QUARANTINE_SECONDS)
        await self._remove(pod)
        return None

    async def _exists(self, node: str) -> bool:
        try:
            await self._client.get(Node, node)
        except NotFound:
            return False
        return True

    async def _remove(self, pod: Pod) -> None:
        await remove(self._client, Pod, key_of(pod), uid_of(pod), grace_seconds=0)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            return
        node = _node_of(new)
        if not node:
            lost = is_being_deleted(new)
        else:
            relevant = old is None or is_being_deleted(new) or _node_of(old) != node
            lost = relevant and self.nodes.get(Key("", node)) is None
        if lost:
            self.queue.add(key_of(new))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._missing.pop(key_of(new).name, None)
        elif old is not None:
            if ready_status(old) == "Unknown":
                self._missing[key_of(old).name] = self._monotonic() - QUARANTINE_SECONDS
            for pod in self.pods.indexed(by_node, key_of(old).name):
                self.queue.add(key_of(pod))


def _node_of(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""
