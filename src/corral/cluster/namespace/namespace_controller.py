"""Deletes the content of a namespace that is being deleted, then its finalizer.

Pods are deleted first, so that guests end while their disks and Secrets exist (KEP 5080, ordered
namespace deletion).
"""

import msgspec
from lightkube.models.core_v1 import Namespace

from corral.api.errors import ApiError
from corral.api.kind import Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.cluster.namespace.deletion_conditions import DeletionResult, conditions
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.deletion import remove_all
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

PODS = "pods"
BATCH_SECONDS = 0.1
"""Delay of events about deleted objects, so that they are handled together."""
RETRY_SECONDS = 15.0
"""Interval after which a namespace with remaining objects is synced in any case."""
UNWATCHED = frozenset({"events", "leases"})
"""Kinds without finalizers, deleted at once: there is nothing to wait for."""


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that deletes namespaces."""
    loop = Namespaces(context)
    return Controller("namespace", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Namespaces:
    """Caches of namespaces and of the metadata of their content."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self.namespaces = context.informers.of(Namespace)
        self.namespaces.handle(self._namespace_changed)
        self._kinds = context.kinds
        self._informers = context.informers
        self.sources: list[Source] = [self.namespaces]
        context.kinds.subscribe(self._kind_added)
        self.sources.append(context.kinds)

    async def reconcile(self, key: Key) -> Result | None:
        """Delete what remains in a namespace; when it is empty, finalize the namespace."""
        namespace = self.namespaces.get(key)
        if namespace is None or not is_being_deleted(namespace):
            return None
        if not await self._are_kinds_current(namespace):
            return Result(requeue_after=BATCH_SECONDS)  # kinds without an informer may exist
        result = await self._empty(key.name)
        await self._update_status(namespace, result)
        if result.errors:
            raise result.errors[0]
        if not result.is_empty:
            return Result(requeue_after=RETRY_SECONDS)
        await self._client.replace(
            Namespace,
            {
                "metadata": {"name": key.name, "uid": uid_of(namespace)},
                "spec": {"finalizers": []},
            },
            subresource="finalize",
        )
        return None

    async def _are_kinds_current(self, namespace: Namespace) -> bool:
        try:
            return await self._kinds.are_current(self._client)
        except ApiError as error:
            await self._update_status(namespace, DeletionResult(discovery_error=str(error)))
            raise

    async def _empty(self, name: str) -> DeletionResult:
        """Delete all pods; once these are gone, everything else."""
        result = DeletionResult()
        for kind in namespaced_kinds(self._kinds.table):
            try:
                remaining = await remove_all(self._client, kind, name, propagation="Background")
                result.remaining[f"{kind.plural}.{kind.group}"] = remaining
            except ApiError as error:
                result.errors.append(error)
            if kind.resource == PODS and not result.is_empty:
                break
        return result

    async def _update_status(self, namespace: Namespace, result: DeletionResult) -> None:
        old = msgspec.to_builtins(list((namespace.status and namespace.status.conditions) or ()))
        new = conditions(old, result, rfc3339(self._clock()))
        if new == old:
            return
        change = {"metadata": {"uid": uid_of(namespace)}, "status": {"conditions": new}}
        await self._client.patch(Namespace, key_of(namespace), change, subresource="status")

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is not None and is_being_deleted(new) and (old is None or not is_being_deleted(old)):
            self.queue.add(key_of(new))

    def _kind_added(self, kind: Kind) -> None:
        if kind.namespaced and (kind.plural not in UNWATCHED or not kind.native):
            informer = self._informers.metadata(kind)
            informer.handle(self._content_changed)
            self.sources.append(informer)

    def _content_changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if new is not None or old is None:
            return
        key = Key("", key_of(old).namespace)
        namespace = self.namespaces.get(key)
        if namespace is not None and is_being_deleted(namespace):
            self.queue.add_after(key, BATCH_SECONDS)


def namespaced_kinds(kinds: KindTable) -> list[Kind]:
    """Return the stored namespaced kinds, pods first."""
    found = [kind for kind in kinds if kind.namespaced and kind.is_kept]
    return sorted(found, key=lambda kind: kind.resource != PODS)
