"""What the author of an object was allowed to copy, by the DataSources that it names.  Pure.

Where a DataSource leads may change at any time, and its author is not asked about those who name
it.  So the server writes down, when somebody writes a DataVolume, or what DataVolumes are made for,
what they may copy by each reference; it goes from there to what is made of it.  CDI has a signed
token for this; here nobody but the server and the controllers can write it.
"""

from collections.abc import Mapping

import msgspec

from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.object import Document, Key

PERMITTED = "corral.dev/permitted-copies"
"""A JSON object: the DataSource that is named, and the claim that may be copied by that, both as
``NAMESPACE/NAME``; with the name ``*`` any claim of the namespace."""
ANY = "*"

Record = dict[str, str]


def record_of(document: Document | None) -> Record:
    """What a document says that was allowed; nothing where that cannot be read."""
    return _read(at(document, "metadata", "annotations") or {})


def write(document: Document, record: Record) -> None:
    """Let a document say what was allowed, and nothing else that it may have said."""
    metadata = document["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    if record:
        text = msgspec.json.encode(record, order="sorted").decode()
        metadata["annotations"] = {**annotations, PERMITTED: text}
    elif PERMITTED in annotations:
        metadata["annotations"] = _without(annotations)


def handed_on(annotations: Mapping[str, str], author: Mapping[str, str]) -> dict[str, str]:
    """Annotations of what is made of an object, with what was allowed to that object's author."""
    own = {PERMITTED: author[PERMITTED]} if PERMITTED in author else {}
    return _without(annotations) | own


def permits(annotations: Mapping[str, str], reference: Key, claim: Key) -> bool:
    """Whether a claim may be copied since a DataSource leads to it."""
    allowed = _read(annotations).get(str(reference))
    return allowed in (str(claim), str(Key(claim.namespace, ANY)))


def _read(annotations: Mapping[str, str]) -> Record:
    try:
        return decode_as(annotations.get(PERMITTED) or "{}", Record)
    except msgspec.DecodeError:
        return {}


def _without(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name != PERMITTED}
