"""Creates the system namespaces, and recreates them when they are deleted.

Those of Kubernetes (its API server checks every minute) and that of KubeVirt's components, by which
clients find KubeVirt. Some of them cannot be deleted in the first place.
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
    queue = WorkQueue[Key]()
    namespaces = context.informers.of(Namespace)

    def changed(old: Namespace | None, new: Namespace | None) -> None:
        if new is None and old is not None and key_of(old).name in NAMESPACES:
            queue.add(key_of(old))

    async def create(key: Key) -> None:
        if namespaces.get(key) is None:
            try:
                await context.client.create(Namespace, {"metadata": {"name": key.name}})
            except AlreadyExists:
                return  # the cache has yet to show it

    namespaces.handle(changed)
    for name in NAMESPACES:
        queue.add(Key("", name))
    return Controller("system-namespaces", create, queue=queue, sources=(namespaces,), workers=1)
