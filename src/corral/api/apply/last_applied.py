"""The last-applied-configuration annotation: the way from client-side to server-side apply.

Client-side apply stores the configuration in an annotation.  When kubectl then applies on the
server, fields that still have the value in the annotation do not conflict with the manager that
wrote them, which was kubectl.  The annotation is kept up to date, for users who go back.
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
"""kubectl's default field manager."""
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def fields(typed: Typed, schema: Schema, live: Document, api_version: str) -> Fields:
    """Return the paths that were applied on the client and still have the same values.

    ``schema`` is that of ``typed``.
    """
    annotation = _annotation(live)
    try:
        applied = decode_as(annotation or "{}", object)
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
    """Update the annotation in a document to be stored, if the live one has it.

    It is removed if the annotations would exceed their limit.
    """
    if not _annotation(live):
        return
    annotations = dict(at(configuration, "metadata", "annotations") or {})
    annotations.pop(ANNOTATION, None)
    metadata = configuration["metadata"] | {"annotations": annotations}
    annotation = encode_sorted(configuration | {"metadata": metadata}).decode() + "\n"
    kept = dict(document["metadata"].get("annotations") or {}) | {ANNOTATION: annotation}
    if sum(len(key.encode()) + len(value.encode()) for key, value in kept.items()) > (
        LARGEST_ANNOTATIONS
    ):
        del kept[ANNOTATION]
    document["metadata"] = document["metadata"] | {"annotations": kept}


def _annotation(live: Document) -> str:
    annotation = at(live, "metadata", "annotations", ANNOTATION)
    return annotation if isinstance(annotation, str) else ""
