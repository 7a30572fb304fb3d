"""The loop of the scheduler: keeps count of what is asked of each node, and binds pods to them."""

from collections import Counter
from datetime import datetime

import msgspec
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.core.node_pressure import pressures
from corral.api.kinds.storage.common import SELECTED_NODE, class_name
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.api.volume_binding import USED_BY, claim_index, claim_of, claims_of, reserve
from corral.cluster.scheduler import fit, volume_binding
from corral.cluster.scheduler.fit import Room, Verdict
from corral.cluster.scheduler.volume_binding import Stock, Wanted
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

NAME = "default-scheduler"
"""Pods that ask for another scheduler are left alone."""
WORKERS = 32
WAKE_SECONDS = 0.1
"""When room is made somewhere, pods that found none are looked at again after this time."""
PATIENCE_SECONDS = 300.0
"""They are looked at again after this time in any case, as kube-scheduler does."""
_FINISHED = frozenset({"Succeeded", "Failed"})


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that binds pods to nodes."""
    loop = Scheduler(context)
    return Controller(
        "scheduler",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.pods, loop.nodes, loop.claims, loop.volumes, loop.classes),
        workers=WORKERS,
    )


class Scheduler:
    """What is asked of each node, by pods that are bound and pods that are being bound."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.pods = context.informers.of(Pod)
        self.nodes = context.informers.of(Node)
        self.claims = context.informers.of(PersistentVolumeClaim)
        self.volumes = context.informers.of(PersistentVolume)
        self.classes = context.informers.of(StorageClass)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(NAME)
        self._rooms: dict[str, Room] = {}
        self._placed: dict[str, tuple[str, Counter[str]]] = {}
        """By the pod's uid: its node, and what it asks."""
        self._waiting: set[Key] = set()
        self._stock = self._storage()
        self.nodes.handle(self._node_changed)
        self.pods.handle(self._pod_changed)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._storage_changed)

    def _storage(self) -> Stock:
        self.pods.index(USED_BY, claim_index)
        self.volumes.index("class", lambda volume: (class_name(volume) or "",))
        return Stock(
            claim=self.claims.get,
            volume=self.volumes.get,
            storage_class=self.classes.get,
            offered=lambda name: self.volumes.indexed("class", name),
            users=lambda key: self.pods.indexed(USED_BY, str(key)),
        )

    async def reconcile(self, key: Key) -> Result | None:
        """Bind one pod, or say why that cannot be done."""
        pod = self.pods.get(key)
        if pod is None or not _is_ours(pod):
            self._waiting.discard(key)
            return None
        uid = uid_of(pod)
        if _node_of(pod) or uid in self._placed:
            return None
        wanted = volume_binding.wanted(pod, self._stock)
        verdict = self._choose(pod, wanted)
        if not verdict.node:
            self._waiting.add(key)
            await self._refuse(pod, verdict.message)
            return Result(requeue_after=PATIENCE_SECONDS)
        if wanted.choices or wanted.is_filling:
            self._waiting.add(key)
            await self._claim_on(self._rooms[verdict.node].node, wanted)
            return Result(requeue_after=PATIENCE_SECONDS)
        self._waiting.discard(key)
        self._place(uid, verdict.node, fit.requests(pod))
        try:
            await self._bind(pod, verdict.node)
        except BaseException:
            # Cancelled, too: a pod that is counted as placed is never looked at again.
            self._displace(uid)
            raise
        text = f"Successfully assigned {key} to {verdict.node}"
        self._recorder.event(pod, "Normal", "Scheduled", text)
        return None

    def _choose(self, pod: Pod, wanted: Wanted) -> Verdict:
        rooms = list(self._rooms.values())
        if wanted.fault and rooms:
            return fit.nowhere(wanted.fault, rooms)
        return fit.choose(pod, rooms, wanted.node_fault)

    async def _claim_on(self, node: Node, wanted: Wanted) -> None:
        """Have volumes bound for a node, or made there; the pod follows when they are."""
        for each in wanted.bindings(node) or ():
            if each.volume is not None:
                if (patch := reserve(each.volume, each.claim)) is not None:
                    await self._client.patch(PersistentVolume, key_of(each.volume), patch)
            elif SELECTED_NODE not in annotations_of(each.claim):
                metadata: Document = {
                    "resourceVersion": version_of(each.claim),
                    "annotations": {SELECTED_NODE: key_of(node).name},
                }
                document = {"metadata": metadata}
                await self._client.patch(PersistentVolumeClaim, key_of(each.claim), document)

    async def _bind(self, pod: Pod, node: str) -> None:
        key = key_of(pod)
        binding: Document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.post(Pod, key, "binding", binding)

    async def _refuse(self, pod: Pod, message: str) -> None:
        self._recorder.event(pod, "Warning", "FailedScheduling", message)
        if (conditions := unschedulable(pod, message, self._context.clock())) is not None:
            status = {"phase": "Pending", "conditions": conditions}
            await self._client.patch(Pod, key_of(pod), {"status": status}, subresource="status")

    # -- counting -----------------------------------------------------------------------------

    def _place(self, uid: str, node: str, asked: Counter[str]) -> None:
        self._placed[uid] = (node, asked)
        if (room := self._rooms.get(node)) is not None:
            fit.add_all(room.used, asked.items(), 1)

    def _displace(self, uid: str) -> None:
        node, asked = self._placed.pop(uid, ("", Counter[str]()))
        if (room := self._rooms.get(node)) is not None:
            fit.add_all(room.used, asked.items(), -1)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            del self._rooms[key_of(old).name]
            return
        name = key_of(new).name
        if (room := self._rooms.get(name)) is not None:
            room.node = new
        else:
            room = self._rooms[name] = Room(new)
            for node, asked in self._placed.values():
                if node == name:
                    fit.add_all(room.used, asked.items(), 1)
        if old is None or _offers(old) != _offers(new):
            self._wake()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = uid_of(pod)
        if new is None or _is_finished(new):
            if uid in self._placed:
                self._displace(uid)
                self._wake()
            self._waiting.discard(key_of(pod))
        elif not _node_of(new):
            if old is None and _is_ours(new):
                self.queue.add(key_of(new))
        elif uid not in self._placed:
            self._place(uid, _node_of(new), fit.requests(new))

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        claim = new or old
        assert claim is not None
        self._look_again(key_of(claim))

    def _volume_changed(self, _old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None:
            return
        if (named := claim_of(new)) is None:
            self._storage_changed(None, new)
        else:
            self._look_again(Key(named.namespace or "", named.name or ""))

    def _look_again(self, claim: Key) -> None:
        """At the pods that wait for a claim."""
        for pod in self.pods.indexed(USED_BY, str(claim)):
            if key_of(pod) in self._waiting:
                self.queue.add(key_of(pod))

    def _storage_changed(self, _old: msgspec.Struct | None, _new: msgspec.Struct | None) -> None:
        """Pods that wait for any volume of a kind may find one now."""
        for key in self._waiting:
            pod = self.pods.get(key)
            if pod is not None and claims_of(pod):
                self.queue.add_after(key, WAKE_SECONDS)

    def _wake(self) -> None:
        for key in self._waiting:
            self.queue.add_after(key, WAKE_SECONDS)


def unschedulable(pod: Pod, message: str, now: datetime) -> list[Document] | None:
    """The pod's conditions once PodScheduled says why it has no node; None when it says so."""
    conditions = (pod.status and pod.status.conditions) or []
    since = rfc3339(now)
    others: list[Document] = []
    for condition in conditions:
        if condition.type != "PodScheduled":
            others.append(msgspec.to_builtins(condition))
            continue
        if (condition.reason, condition.message) == ("Unschedulable", message):
            return None
        if condition.status == "False" and condition.lastTransitionTime:
            since = rfc3339(condition.lastTransitionTime)
    return [
        *others,
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": since,
        },
    ]


def _is_ours(pod: Pod) -> bool:
    scheduler = (pod.spec and pod.spec.schedulerName) or NAME
    return scheduler == NAME and not is_being_deleted(pod) and not _is_finished(pod)


def _is_finished(pod: Pod) -> bool:
    return (pod.status and pod.status.phase) in _FINISHED


def _node_of(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""


def _offers(node: Node) -> tuple[object, ...]:
    """What of a node decides which pods it can take."""
    spec, status = node.spec, node.status
    return (
        fit.is_ready(node),
        pressures(node),
        bool(spec and spec.unschedulable),
        spec and spec.taints,
        status and status.allocatable,
        node.metadata and node.metadata.labels,
    )
