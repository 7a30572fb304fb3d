"""Storage classes of PersistentVolumeClaims: the default class, and expansion.

Kubernetes' admission plugins DefaultStorageClass and PersistentVolumeClaimResize.
"""

import msgspec
from lightkube.models.storage_v1 import StorageClass

from corral.api.kind import at
from corral.api.kinds.storage.common import BOUND, STORAGE, class_of, default_class
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.storage.storageclass import STORAGE_CLASS
from corral.api.object import Document, Key
from corral.api.quantity import amount
from corral.server.request.call import forbidden, storage
from corral.store import Store

_NOT_EXPANDABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
    "must support resize"
)


class ClaimStorageClasses:
    """The admission plugin of PersistentVolumeClaims, by the storage classes of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, claim: Document, old: Document | None) -> None:
        """Set the default class of a new claim; check that a growing one's class allows expansion.

        Raises Forbidden.
        """
        if old is None:
            if class_of(claim) is None and (name := self._default()):
                claim["spec"]["storageClassName"] = name
        elif _grows(claim, old) and not self._is_expandable(old):
            raise forbidden(CLAIM, claim["metadata"]["name"], _NOT_EXPANDABLE)

    def _default(self) -> str:
        classes = self._store.latest_all(storage(STORAGE_CLASS)).values()
        default = default_class(msgspec.convert(each.document(), StorageClass) for each in classes)
        return (default and default.metadata and default.metadata.name) or ""

    def _is_expandable(self, claim: Document) -> bool:
        record = self._store.latest(storage(STORAGE_CLASS), Key("", class_of(claim) or ""))
        return record is not None and bool(record.document().get("allowVolumeExpansion"))


def _grows(claim: Document, old: Document) -> bool:
    """Return whether a bound claim requests more; validation fixes the size of unbound ones."""
    sizes = [amount(at(each, "spec", "resources", "requests", STORAGE)) for each in (claim, old)]
    return at(old, "status", "phase") == BOUND and sizes[0] > sizes[1]
