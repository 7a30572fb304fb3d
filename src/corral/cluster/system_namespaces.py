"""Keeps the namespaces that every cluster has: one that somebody deletes comes back.

Kubernetes' own (its API server looks every minute), and the one of KubeVirt's components, without
which clients find no KubeVirt.  Some of them cannot be deleted in the first place.
"""

from typing import Final

from lightkube.models.core_v1 import Namespace

from corral.api.errors import AlreadyExists
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease", "kubevirt")


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of these namespaces."""
    queue = WorkQueue[Key]()
    namespaces = context.informers.of(Namespace)

    def changed(old: Namespace | None, new: Namespace | None) -> None:
        if new is None and old is not None and key_of(old).name in NAMESPACES:
            queue.add(key_of(old))

    async def make(key: Key) -> None:
        if namespaces.get(key) is None:
            try:
                await context.client.create(Namespace, {"metadata": {"name": key.name}})
            except AlreadyExists:
                return  # the cache has yet to show it

    namespaces.handle(changed)
    for name in NAMESPACES:
        queue.add(Key("", name))
    return Controller("system-namespaces", make, queue=queue, sources=(namespaces,), workers=1)
