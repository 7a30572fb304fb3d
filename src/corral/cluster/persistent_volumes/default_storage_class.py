"""Makes the storage class that is there from the start.

It is made when it is missing as the loops start, and never changed: which class is the default, and
which others there are of the same provisioner, is the user's to say.
"""

from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists
from corral.api.kinds.storage.common import CORRAL_CLASS, CORRAL_PROVISIONER, DEFAULT_CLASS
from corral.api.object import Document, Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.workqueue import WorkQueue


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that makes the class, once."""
    classes = context.informers.of(StorageClass)
    queue = WorkQueue[Key]()
    key = Key("", CORRAL_CLASS)
    queue.add(key)

    async def make(_key: Key) -> None:
        if classes.get(key) is None:
            try:
                await context.client.create(StorageClass, storage_class())
            except AlreadyExists:
                return  # made by somebody else a moment ago

    return Controller("default-class", make, queue=queue, sources=(classes,), workers=1)


def storage_class() -> Document:
    """The class, as it is made."""
    return {
        "metadata": {"name": CORRAL_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": CORRAL_PROVISIONER,
        "allowVolumeExpansion": True,
    }
