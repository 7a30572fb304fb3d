"""Limit ranges of pods and PersistentVolumeClaims (Kubernetes' admission plugin LimitRanger)."""

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
    """The admission plugin of pods and PersistentVolumeClaims, by the limit ranges of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit_pod(self, pod: Document, old: Document | None) -> None:
        """Default and check a new pod's resources, which never change later.  Raises Forbidden."""
        ranges = self._of(pod) if old is None else []
        for each in ranges:
            limit_ranges.set_defaults(pod, each)
        if ranges:
            pod["status"]["qosClass"] = quality_of_service(pod)
        view = _as_view(pod, Pod) if ranges else None
        if view is not None:
            for each in ranges:
                _reject_faults(POD, pod, limit_ranges.pod_faults(view, each))

    def check_claim(self, claim: Document, old: Document | None) -> None:
        """Check a claim's requested size.  Raises Forbidden."""
        ranges = self._of(claim)
        view = _as_view(claim, PersistentVolumeClaim) if ranges else None
        if view is None:
            return
        previous = None if old is None else _as_view(old, PersistentVolumeClaim)
        for each in ranges:
            _reject_faults(CLAIM, claim, limit_ranges.claim_faults(view, previous, each))

    def _of(self, document: Document) -> list[LimitRange]:
        namespace = document["metadata"].get("namespace", "")
        records = self._store.objects(storage(LIMIT_RANGE), namespace)
        return [msgspec.convert(each.document(), LimitRange) for each in records]


def _as_view(document: Document, view: type[_View]) -> _View | None:
    """Convert a document to a view; None if it is invalid, which validation reports later."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(document, view)
    return None


def _reject_faults(kind: Kind, document: Document, faults: list[str]) -> None:
    if faults:
        raise forbidden(kind, document["metadata"]["name"], limit_ranges.refusal(faults))
