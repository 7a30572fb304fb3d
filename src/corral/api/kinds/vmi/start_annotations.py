"""Validation of the annotations by which a VMI starts from a checkpoint.  No I/O."""

import uuid
from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.kinds.vmi.saved_memory import IDENTITY, START_FROM, START_ON
from corral.api.names import subdomain_faults
from corral.api.object import Document


def check_start(document: Document, path: str) -> Iterator[Cause]:
    """Check the annotations of a new VMI, or of a template; ``path`` is that of its metadata."""
    annotations = at(document, "metadata", "annotations") or {}
    if START_FROM not in annotations:
        return
    for name in (START_FROM, START_ON):
        if (value := annotations.get(name)) is not None:
            for fault in subdomain_faults(value):
                yield invalid_annotation(path, name, value, fault)
    value = annotations.get(IDENTITY)
    if value is not None and not _is_uuid(value):
        yield invalid_annotation(path, IDENTITY, value, "must be the UUID of a VMI")


def invalid_annotation(path: str, name: str, value: str, fault: str) -> Cause:
    """Return the cause of an invalid annotation, whose message names it."""
    field = f"{path}.annotations[{name}]"
    return Cause(field, f"{field}: {invalid(field, value, fault).message}")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
