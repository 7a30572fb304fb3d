"""What claims are given, and refused, by what storage classes say.

Kubernetes has admission plugins for this (DefaultStorageClass, PersistentVolumeClaimResize).
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


class ClaimClasses:
    """The storage classes of a store, as they bear upon claims."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, claim: Document, old: Document | None) -> None:
        """Give a new claim the default class; let one grow only where its class allows that.

        Raises Forbidden.
        """
        if old is None:
            if class_of(claim) is None and (name := self._default()):
                claim["spec"]["storageClassName"] = name
        elif _grows(claim, old) and not self._is_expandable(old):
            raise forbidden(CLAIM, claim["metadata"]["name"], _NOT_EXPANDABLE)

    def _default(self) -> str:
        classes = self._store.latest_all(storage(STORAGE_CLASS)).values()
        found = default_class(msgspec.convert(each.document(), StorageClass) for each in classes)
        return (found and found.metadata and found.metadata.name) or ""

    def _is_expandable(self, claim: Document) -> bool:
        record = self._store.latest(storage(STORAGE_CLASS), Key("", class_of(claim) or ""))
        return record is not None and bool(record.document().get("allowVolumeExpansion"))


def _grows(claim: Document, old: Document) -> bool:
    """Whether a claim that has its volume asks for more; of others the size cannot change."""
    sizes = [amount(at(each, "spec", "resources", "requests", STORAGE)) for each in (claim, old)]
    return at(old, "status", "phase") == BOUND and sizes[0] > sizes[1]
