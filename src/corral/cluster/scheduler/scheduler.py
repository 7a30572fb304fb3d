"""Scheduler: sums up the requests on each node, and binds pods to nodes."""

from collections import Counter
from datetime import datetime
from itertools import chain

import msgspec
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api import node_fit
from corral.api.kinds.core.node_pressure import pressures
from corral.api.kinds.storage.common import (
    BIND_COMPLETED,
    SELECTED_NODE,
    STORAGE_CAPACITY,
)
from corral.api.node_fit import NodeInfo, Placement
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.api.volume_binding import (
    claim_index,
    claim_of,
    claim_patch,
    claims_of,
    is_finished,
    node_of,
)
from corral.cluster.scheduler import volume_binding
from corral.cluster.scheduler.volume_binding import Listers, PodVolumes
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.indexes import by_class
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

NAME = "default-scheduler"
"""Pods with another ``schedulerName`` are ignored."""
WORKERS = 32
WAKE_SECONDS = 0.1
"""Delay after which unschedulable pods are retried when resources become free."""
RETRY_SECONDS = 300.0
"""Interval after which they are retried in any case, as in kube-scheduler."""


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that binds pods to nodes."""
    loop = Scheduler(context)
    return Controller(
        "scheduler",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.pods, loop.nodes, loop.claims, loop.volumes, loop.classes),
        workers=WORKERS,
    )


class Scheduler:
    """Caches, and the requests on each node of pods that are bound or being bound."""

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
        self._nodes: dict[str, NodeInfo] = {}
        self._assigned: dict[str, tuple[str, Counter[str]]] = {}
        """Node and requests by the pod's uid."""
        self._reserved: dict[str, tuple[str, Counter[str]]] = {}
        """The same of pods whose volumes are being bound or populated, so that others spread."""
        self._unschedulable: set[Key] = set()
        self._listers = self._make_listers()
        self.nodes.handle(self._node_changed)
        self.pods.handle(self._pod_changed)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._storage_changed)

    def _make_listers(self) -> Listers:
        self.pods.index(claim_index)
        self.volumes.index(by_class)
        return Listers(
            claim=self.claims.get,
            volume=self.volumes.get,
            storage_class=self.classes.get,
            volumes_of_class=lambda name: self.volumes.indexed(by_class, name),
            users=lambda key: self.pods.indexed(claim_index, str(key)),
        )

    async def reconcile(self, key: Key) -> Result | None:
        """Bind one pod, or report why it is unschedulable."""
        pod = self.pods.get(key)
        if pod is None or not _is_ours(pod):
            self._unschedulable.discard(key)
            return None
        uid = uid_of(pod)
        if node_of(pod) or uid in self._assigned:
            return None
        self._release(uid)
        pod_volumes = volume_binding.pod_volumes(pod, self._listers)
        placement = self._choose(pod, pod_volumes)
        if not placement.node:
            self._unschedulable.add(key)
            await self._report_unschedulable(pod, placement.message)
            return Result(requeue_after=RETRY_SECONDS)
        if pod_volumes.delayed or pod_volumes.is_filling:
            self._unschedulable.add(key)
            self._reserve(uid, placement.node, node_fit.requests(pod))
            await self._bind_volumes(self._nodes[placement.node].node, pod_volumes)
            return Result(requeue_after=RETRY_SECONDS)
        self._unschedulable.discard(key)
        self._assume(uid, placement.node, node_fit.requests(pod))
        try:
            await self._bind(pod, placement.node)
        except BaseException:
            # On cancellation, too: a pod that counts as assigned is never scheduled again.
            self._forget(uid)
            raise
        text = f"Successfully assigned {key} to {placement.node}"
        self._recorder.event(pod, "Normal", "Scheduled", text)
        return None

    def _choose(self, pod: Pod, pod_volumes: PodVolumes) -> Placement:
        infos = list(self._nodes.values())
        if pod_volumes.reason and infos:
            return node_fit.no_node(pod_volumes.reason, infos)
        if pod_volumes.sources:
            beside = node_fit.choose(pod, infos, pod_volumes.unfit_reason_beside_sources)
            if beside.node:
                return beside
        return node_fit.choose(pod, infos, pod_volumes.unfit_reason)

    async def _bind_volumes(self, node: Node, pod_volumes: PodVolumes) -> None:
        """Have the pod's volumes bound or provisioned for a node; the pod is bound afterwards."""
        for each in pod_volumes.bindings(node) or ():
            if each.volume is not None:
                if (patch := claim_patch(each.volume, each.claim)) is not None:
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

    async def _report_unschedulable(self, pod: Pod, message: str) -> None:
        self._recorder.event(pod, "Warning", "FailedScheduling", message)
        if (conditions := unschedulable(pod, message, self._context.clock())) is not None:
            status = {"phase": "Pending", "conditions": conditions}
            await self._client.patch(Pod, key_of(pod), {"status": status}, subresource="status")

    # -- accounting ---------------------------------------------------------------------------

    def _assume(self, uid: str, node: str, requested: Counter[str]) -> None:
        self._assigned[uid] = (node, requested)
        if (info := self._nodes.get(node)) is not None:
            node_fit.add_all(info.used, requested.items(), 1)

    def _forget(self, uid: str) -> None:
        node, requested = self._assigned.pop(uid, ("", Counter[str]()))
        if (info := self._nodes.get(node)) is not None:
            node_fit.add_all(info.used, requested.items(), -1)

    def _reserve(self, uid: str, node: str, requested: Counter[str]) -> None:
        self._reserved[uid] = (node, requested)
        if (info := self._nodes.get(node)) is not None:
            node_fit.add_all(info.used, requested.items(), 1)

    def _release(self, uid: str) -> None:
        node, requested = self._reserved.pop(uid, ("", Counter[str]()))
        if (info := self._nodes.get(node)) is not None:
            node_fit.add_all(info.used, requested.items(), -1)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            del self._nodes[key_of(old).name]
            return
        name = key_of(new).name
        if (info := self._nodes.get(name)) is not None:
            info.node = new
        else:
            info = self._nodes[name] = NodeInfo(new)
            for node, requested in chain(self._assigned.values(), self._reserved.values()):
                if node == name:
                    node_fit.add_all(info.used, requested.items(), 1)
        if old is None or _fingerprint(old) != _fingerprint(new):
            self._wake()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = uid_of(pod)
        if new is None or is_finished(new) or node_of(new):
            self._release(uid)
        if new is None or is_finished(new):
            if uid in self._assigned:
                self._forget(uid)
                self._wake()
            self._unschedulable.discard(key_of(pod))
        elif not node_of(new):
            if old is None and _is_ours(new):
                self.queue.add(key_of(new))
        elif uid not in self._assigned:
            self._assume(uid, node_of(new), node_fit.requests(new))
        elif old is not None and old.spec != new.spec:  # it was resized, perhaps
            self._forget(uid)
            self._assume(uid, node_of(new), node_fit.requests(new))
            self._wake()

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        claim = new or old
        assert claim is not None
        self._enqueue_users(key_of(claim))
        if _is_bound(new) and not _is_bound(old):
            self._storage_changed(old, new)  # it may be the source of a clone

    def _volume_changed(self, _old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None:
            return
        if (named := claim_of(new)) is None:
            self._storage_changed(None, new)
        else:
            self._enqueue_users(Key(named.namespace or "", named.name or ""))

    def _enqueue_users(self, claim: Key) -> None:
        """Enqueue unschedulable pods that use a claim."""
        for pod in self.pods.indexed(claim_index, str(claim)):
            if key_of(pod) in self._unschedulable:
                self.queue.add(key_of(pod))

    def _storage_changed(self, _old: msgspec.Struct | None, _new: msgspec.Struct | None) -> None:
        """Enqueue unschedulable pods with claims: they may find a volume now."""
        for key in self._unschedulable:
            pod = self.pods.get(key)
            if pod is not None and claims_of(pod):
                self.queue.add_after(key, WAKE_SECONDS)

    def _wake(self) -> None:
        for key in self._unschedulable:
            self.queue.add_after(key, WAKE_SECONDS)


def unschedulable(pod: Pod, message: str, now: datetime) -> list[Document] | None:
    """Return the pod's conditions with PodScheduled set to False; None if unchanged."""
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


def _is_bound(claim: PersistentVolumeClaim | None) -> bool:
    return claim is not None and BIND_COMPLETED in annotations_of(claim)


def _is_ours(pod: Pod) -> bool:
    scheduler = (pod.spec and pod.spec.schedulerName) or NAME
    return scheduler == NAME and not is_being_deleted(pod) and not is_finished(pod)


def _fingerprint(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that determine which pods fit."""
    spec, status = node.spec, node.status
    return (
        node_fit.is_ready(node),
        pressures(node),
        bool(spec and spec.unschedulable),
        spec and spec.taints,
        status and status.allocatable,
        node.metadata and node.metadata.labels,
        annotations_of(node).get(STORAGE_CAPACITY),
    )
