"""From client-side to server-side apply: what kubectl noted down about itself.

Who applied on the client left the configuration in an annotation.  When kubectl then applies on the
server, fields that still are as it says are no conflicts with whoever wrote them, as that was
kubectl; and the annotation is kept up, for those who go back.
"""

from typing import Final

import msgspec

from corral.api.apply.field_sets import LEAF, Fields, difference
from corral.api.apply.types import Typed
from corral.api.encoding import decode_as, encode_sorted
from corral.api.kind import at
from corral.api.metadata import LARGEST_ANNOTATIONS
from corral.api.object import Document
from corral.api.schema import Schema

MANAGER: Final = "kubectl"
"""The name under which kubectl applies, if its user gives no other."""
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def fields(typed: Typed, schema: Schema, live: Document, api_version: str) -> Fields:
    """The paths that were applied on the client and still are as they were applied then.

    ``schema`` is that of ``typed``.
    """
    note = _note(live)
    try:
        applied = decode_as(note or "{}", object)
    except msgspec.DecodeError:
        return LEAF
    if not isinstance(applied, dict) or applied.get("apiVersion") != api_version:
        return LEAF
    if typed.faults(applied):
        return LEAF
    schema.prune(applied)
    changed, removed = typed.compare(applied, live)
    return difference(difference(typed.applied(applied), changed), removed)


def renew(document: Document, live: Document, configuration: Document) -> None:
    """Note down what is applied, in a document to be stored, where the live one has such a note.

    It is left out where annotations would become larger than they may be.
    """
    if not _note(live):
        return
    annotations = dict(at(configuration, "metadata", "annotations") or {})
    annotations.pop(ANNOTATION, None)
    metadata = configuration["metadata"] | {"annotations": annotations}
    note = encode_sorted(configuration | {"metadata": metadata}).decode() + "\n"
    kept = dict(document["metadata"].get("annotations") or {}) | {ANNOTATION: note}
    if sum(len(key.encode()) + len(value.encode()) for key, value in kept.items()) > (
        LARGEST_ANNOTATIONS
    ):
        del kept[ANNOTATION]
    document["metadata"] = document["metadata"] | {"annotations": kept}


def _note(live: Document) -> str:
    note = at(live, "metadata", "annotations", ANNOTATION)
    return note if isinstance(note, str) else ""
