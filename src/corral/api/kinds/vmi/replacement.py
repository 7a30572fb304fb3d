"""Replicas that are replaced only after their successor is ready: the annotations for it.  No I/O.

A set asks for it; an eviction that its PodDisruptionBudget refuses then marks the VMI, which the
set replaces first and deletes afterwards.
"""

from collections.abc import Mapping
from typing import Final

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document

REPLACE_AFTER_READY: Final = "corral.dev/replace-after-ready"
"""Annotation of a replica set, ``"true"``: its VMIs are to be replaced so."""
REPLACEMENT_REQUESTED: Final = "corral.dev/replacement-requested"
"""Annotation of a VMI: the node that it is to leave, once another one of its set is ready."""
_VALUES: Final = ("true", "false")


def replaces_after_ready(annotations: Mapping[str, str] | None) -> bool:
    """Report whether a set asks for it, by its annotations."""
    return (annotations or {}).get(REPLACE_AFTER_READY) == "true"


def is_to_be_replaced(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI is to leave the node that it runs on."""
    node = vmi.metadata.annotations.get(REPLACEMENT_REQUESTED, "")
    return bool(node) and node == vmi.status.node_name


def check_annotation(document: Document, old: Document | None) -> list[Cause]:
    """Check the annotation of a set, where it changes."""
    value = at(document, "metadata", "annotations", REPLACE_AFTER_READY)
    if value in (None, *_VALUES) or value == at(
        old, "metadata", "annotations", REPLACE_AFTER_READY
    ):
        return []
    field = f"metadata.annotations[{REPLACE_AFTER_READY}]"
    message = f'{field}: Unsupported value: "{value}": supported values: "true", "false"'
    return [Cause(field, message, "FieldValueNotSupported")]
