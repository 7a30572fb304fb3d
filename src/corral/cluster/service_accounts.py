"""Creates the ServiceAccount ``default`` and the ConfigMap ``kube-root-ca.crt`` in each namespace.

Clients in pods, and in VMIs with a ServiceAccount, verify the server by the CA in the ConfigMap.
"""

from collections.abc import Callable

import msgspec
from lightkube.models.core_v1 import ConfigMap, Namespace, ServiceAccount

from corral.api.errors import AlreadyExists, Forbidden
from corral.api.kinds.vmi.referenced_objects import AUTHORITY
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.workqueue import WorkQueue

ACCOUNT = "default"
_DESCRIPTION = {
    "kubernetes.io/description": (
        "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
        "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
        "guaranteed across distributions of Kubernetes clusters."
    )
}


def controller(authority: Callable[[], str]) -> Callable[[ControllerContext], Controller[Key]]:
    """Return the factory of the controller; ``authority`` returns the CA as PEM."""

    def factory(context: ControllerContext) -> Controller[Key]:
        loop = Accounts(context, authority)
        return Controller("accounts", loop.reconcile, queue=loop.queue, sources=loop.sources)

    return factory


class Accounts:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext, authority: Callable[[], str]) -> None:
        self.queue = WorkQueue[Key]()
        self.namespaces = context.informers.of(Namespace)
        self.accounts = context.informers.of(ServiceAccount, fields=f"metadata.name={ACCOUNT}")
        self.authorities = context.informers.of(ConfigMap, fields=f"metadata.name={AUTHORITY}")
        self.sources = (self.namespaces, self.accounts, self.authorities)
        self._client = context.client
        self._authority = authority
        self.namespaces.handle(self._namespace_changed)
        self.accounts.handle(self._content_changed)
        self.authorities.handle(self._content_changed)

    async def reconcile(self, key: Key) -> None:
        """Create what a namespace lacks."""
        namespace = self.namespaces.get(key)
        if namespace is None or is_being_deleted(namespace):
            return
        if self.accounts.get(Key(key.name, ACCOUNT)) is None:
            await self._create(ServiceAccount, {"metadata": Key(key.name, ACCOUNT)._asdict()})
        data = {"ca.crt": self._authority()}
        present = self.authorities.get(Key(key.name, AUTHORITY))
        metadata = {**Key(key.name, AUTHORITY)._asdict(), "annotations": _DESCRIPTION}
        if present is None:
            await self._create(ConfigMap, {"metadata": metadata, "data": data})
        elif present.data != data:
            await self._client.replace(ConfigMap, {"metadata": metadata, "data": data})

    async def _create(self, view: type[msgspec.Struct], document: Document) -> None:
        try:
            await self._client.create(view, document)
        except (AlreadyExists, Forbidden):
            return  # the cache has yet to show it, or that the namespace goes

    def _namespace_changed(self, _old: Namespace | None, new: Namespace | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _content_changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if (changed := new or old) is not None:
            self.queue.add(Key("", key_of(changed).namespace))
