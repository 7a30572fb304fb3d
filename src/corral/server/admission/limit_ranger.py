"""Pods and claims keep to the limit ranges of their namespace (Kubernetes' LimitRanger)."""

from contextlib import suppress
from typing import TypeVar

import msgspec
from lightkube.models.core_v1 import LimitRange, PersistentVolumeClaim, Pod

from corral.api import limit_ranges
from corral.api.kind import Kind
from corral.api.kinds.core.limit_range import LIMIT_RANGE
from corral.api.kinds.core.pod import POD, quality_of_service
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.object import Document
from corral.server.request.call import forbidden, storage
from corral.store import Store

_View = TypeVar("_View", bound=msgspec.Struct)


class LimitRanges:
    """The limit ranges of a store, as they bear upon pods and claims."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle_pod(self, pod: Document, old: Document | None) -> None:
        """Give a new pod what it does not say of itself; what it asks for never changes after.

        Raises Forbidden.
        """
        ranges = self._of(pod) if old is None else []
        for each in ranges:
            limit_ranges.give(pod, each)
        if ranges:
            pod["status"]["qosClass"] = quality_of_service(pod)
        wanted = _viewed(pod, Pod) if ranges else None
        if wanted is not None:
            for each in ranges:
                _refuse(POD, pod, limit_ranges.pod_faults(wanted, each))

    def check_claim(self, claim: Document, old: Document | None) -> None:
        """Raises Forbidden."""
        ranges = self._of(claim)
        wanted = _viewed(claim, PersistentVolumeClaim) if ranges else None
        if wanted is None:
            return
        before = None if old is None else _viewed(old, PersistentVolumeClaim)
        for each in ranges:
            _refuse(CLAIM, claim, limit_ranges.claim_faults(wanted, before, each))

    def _of(self, document: Document) -> list[LimitRange]:
        namespace = document["metadata"].get("namespace", "")
        records = self._store.objects(storage(LIMIT_RANGE), namespace)
        return [msgspec.convert(each.document(), LimitRange) for each in records]


def _viewed(document: Document, view: type[_View]) -> _View | None:
    """A document as a view; None where it lacks what its kind's rules will ask for."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(document, view)
    return None


def _refuse(kind: Kind, document: Document, faults: list[str]) -> None:
    if faults:
        raise forbidden(kind, document["metadata"]["name"], limit_ranges.refusal(faults))
