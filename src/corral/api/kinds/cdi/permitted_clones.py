"""Permitted clones: which PVCs the author of an object may clone through its DataSources.  No I/O.

The target of a DataSource may change at any time, without authorization of those who refer to it.
So the server records, when a user writes a DataVolume or an object with templates of them, which
PVC the user may clone through each reference; controllers hand the record on to the objects that
they make.  CDI has a signed token for this; here only the server and controllers can write the
annotation.
"""

from collections.abc import Mapping

import msgspec

from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.object import Document, Key

PERMITTED = "corral.dev/permitted-copies"
"""Annotation: a JSON object of DataSource to the PVC that may be cloned through it, both as
``NAMESPACE/NAME``; with the name ``*`` any PVC of the namespace."""
ANY = "*"

Record = dict[str, str]


def record_of(document: Document | None) -> Record:
    """Return the record in a document; empty if it cannot be decoded."""
    return _read(at(document, "metadata", "annotations") or {})


def write(document: Document, record: Record) -> None:
    """Set the record in a document, replacing any that a client sent."""
    metadata = document["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    if record:
        text = msgspec.json.encode(record, order="sorted").decode()
        metadata["annotations"] = {**annotations, PERMITTED: text}
    elif PERMITTED in annotations:
        metadata["annotations"] = _without(annotations)


def inherited(annotations: Mapping[str, str], author: Mapping[str, str]) -> dict[str, str]:
    """Return annotations of an object's descendant, with the record of that object."""
    own = {PERMITTED: author[PERMITTED]} if PERMITTED in author else {}
    return _without(annotations) | own


def permits(annotations: Mapping[str, str], reference: Key, claim: Key) -> bool:
    """Return whether a PVC may be cloned through a DataSource."""
    permitted = _read(annotations).get(str(reference))
    return permitted in (str(claim), str(Key(claim.namespace, ANY)))


def _read(annotations: Mapping[str, str]) -> Record:
    try:
        return decode_as(annotations.get(PERMITTED) or "{}", Record)
    except msgspec.DecodeError:
        return {}


def _without(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name != PERMITTED}
