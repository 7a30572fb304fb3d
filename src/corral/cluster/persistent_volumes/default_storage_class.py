"""Creates the built-in storage classes that are missing.

The default class provisions volumes at once, which is right for one host: imports do not wait for a
machine.  As soon as nodes of a second host are there, a class whose volumes wait for their first
consumer is created, and is the default: of several defaults the newest counts.  A shared directory
has a class of its own, which provisions at once, too: every node with the directory reaches the
volume, so nothing is gained by waiting for a pod.  None is changed afterwards: users may choose
another default, or add classes of the same provisioners.
"""

from lightkube.models.core_v1 import Node
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists
from corral.api.kinds.storage.common import (
    CORRAL_CLASS,
    CORRAL_PROVISIONER,
    DEFAULT_CLASS,
    SHARED_CLASS,
    SHARED_LABEL,
    SHARED_PROVISIONER,
    STORAGE_LABEL,
    WAIT_FOR_FIRST_CONSUMER,
    WAITING_CLASS,
)
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import labels_of
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that creates each class, once."""
    classes = context.informers.of(StorageClass)
    nodes = context.informers.of(Node)
    queue = WorkQueue[Key]()
    queue.add(Key("", CORRAL_CLASS))

    def changed(old: Node | None, new: Node | None) -> None:
        if new is not None and (old is None or labels_of(old) != labels_of(new)):
            if SHARED_LABEL in labels_of(new):
                queue.add(Key("", SHARED_CLASS))
            storages = {labels_of(each).get(STORAGE_LABEL, "") for each in nodes.items()}
            if len(storages - {""}) > 1:
                queue.add(Key("", WAITING_CLASS))

    async def create(key: Key) -> None:
        if classes.get(key) is None:
            try:
                await context.client.create(StorageClass, storage_class(key.name))
            except AlreadyExists:
                return  # created by somebody else meanwhile

    nodes.handle(changed)
    return Controller("default-class", create, queue=queue, sources=(classes, nodes), workers=1)


def storage_class(name: str = CORRAL_CLASS) -> Document:
    """Return a class."""
    if name == SHARED_CLASS:
        return {
            "metadata": {"name": name},
            "provisioner": SHARED_PROVISIONER,
            "allowVolumeExpansion": True,
        }
    waits = {"volumeBindingMode": WAIT_FOR_FIRST_CONSUMER} if name == WAITING_CLASS else {}
    return {
        "metadata": {"name": name, "annotations": {DEFAULT_CLASS: "true"}},
        **waits,
        "provisioner": CORRAL_PROVISIONER,
        "allowVolumeExpansion": True,
    }
