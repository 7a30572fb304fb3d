"""Empties a namespace that is being deleted, then lets it go.

Its pods go first, so that guests end while their disks and Secrets are there (KEP 5080, ordered
namespace deletion), and nothing else is touched before they are gone.
"""

import msgspec
from lightkube.models.core_v1 import Namespace

from corral.api.errors import ApiError
from corral.api.kind import Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.cluster.namespace.deletion_conditions import Emptied, conditions
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result, Source
from corral.reconcile.deletion import remove_all
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

PODS = "pods"
BATCH_SECONDS = 0.1
"""How long news of what went from a namespace waits for more of the kind."""
PATIENCE_SECONDS = 15.0
"""What still holds the namespace is looked at again after this time in any case."""
UNWATCHED = frozenset({"events", "leases"})
"""Kinds that go at once when they are deleted: there is nothing to wait for."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that empties namespaces."""
    loop = Namespaces(context)
    return Controller("namespace", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Namespaces:
    """The namespaces, and watches over what may hold them."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._client = context.client
        self._clock = context.clock
        self.namespaces = context.informers.of(Namespace)
        self.namespaces.handle(self._namespace_changed)
        self._kinds = context.kinds
        self._informers = context.informers
        self.sources: list[Source] = [self.namespaces]
        context.kinds.subscribe(self._kind_came)
        self.sources.append(context.kinds)

    async def reconcile(self, key: Key) -> Result | None:
        """Delete what is left in a namespace; when nothing is, the namespace."""
        namespace = self.namespaces.get(key)
        if namespace is None or not is_being_deleted(namespace):
            return None
        if not await self._are_kinds_known(namespace):
            return Result(requeue_after=BATCH_SECONDS)  # there may be kinds that are not looked at
        emptied = await self._empty(key.name)
        await self._tell(namespace, emptied)
        if emptied.refusals:
            raise emptied.refusals[0]
        if not emptied.is_done:
            return Result(requeue_after=PATIENCE_SECONDS)
        await self._client.replace(
            Namespace,
            {
                "metadata": {"name": key.name, "uid": uid_of(namespace)},
                "spec": {"finalizers": []},
            },
            subresource="finalize",
        )
        return None

    async def _are_kinds_known(self, namespace: Namespace) -> bool:
        try:
            return await self._kinds.are_current(self._client)
        except ApiError as error:
            await self._tell(namespace, Emptied(unknown=str(error)))
            raise

    async def _empty(self, name: str) -> Emptied:
        """Ask for the deletion of all pods; of everything else once these are gone."""
        emptied = Emptied()
        for kind in namespaced_kinds(self._kinds.table):
            try:
                left = await remove_all(self._client, kind, name, propagation="Background")
                emptied.left[f"{kind.plural}.{kind.group}"] = left
            except ApiError as refusal:
                emptied.refusals.append(refusal)
            if kind.resource == PODS and not emptied.is_done:
                break
        return emptied

    async def _tell(self, namespace: Namespace, emptied: Emptied) -> None:
        old = msgspec.to_builtins(list((namespace.status and namespace.status.conditions) or ()))
        told = conditions(old, emptied, rfc3339(self._clock()))
        if told == old:
            return
        change = {"metadata": {"uid": uid_of(namespace)}, "status": {"conditions": told}}
        await self._client.patch(Namespace, key_of(namespace), change, subresource="status")

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is not None and is_being_deleted(new) and (old is None or not is_being_deleted(old)):
            self.queue.add(key_of(new))

    def _kind_came(self, kind: Kind) -> None:
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
    """The kinds whose objects live in namespaces, each storage once; as of now.  Pods first."""
    found = [kind for kind in kinds if kind.namespaced and kind.is_kept]
    return sorted(found, key=lambda kind: kind.resource != PODS)
