"""Creates the default storage class at startup if it is missing.

It is never changed afterwards: users may choose another default, or add classes of the same
provisioner.
"""

from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists
from corral.api.kinds.storage.common import CORRAL_CLASS, CORRAL_PROVISIONER, DEFAULT_CLASS
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that creates the class, once."""
    classes = context.informers.of(StorageClass)
    queue = WorkQueue[Key]()
    key = Key("", CORRAL_CLASS)
    queue.add(key)

    async def create(_key: Key) -> None:
        if classes.get(key) is None:
            try:
                await context.client.create(StorageClass, storage_class())
            except AlreadyExists:
                return  # created by somebody else meanwhile

    return Controller("default-class", create, queue=queue, sources=(classes,), workers=1)


def storage_class() -> Document:
    """Return the class."""
    return {
        "metadata": {"name": CORRAL_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": CORRAL_PROVISIONER,
        "allowVolumeExpansion": True,
    }
