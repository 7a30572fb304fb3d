"""Validation of names that machines carry as a label.  No I/O."""

from collections.abc import Iterator
from typing import Final

from corral.api.errors import Cause
from corral.api.kind import at
from corral.api.kinds.causes import invalid
from corral.api.object import Document

LONGEST_NAME: Final = 63
"""Characters of a label's value."""


def check_name(document: Document, why: str) -> Iterator[Cause]:
    """Check the length of a name; ``why`` says what carries it as a label."""
    name = at(document, "metadata", "name") or ""
    if len(name) > LONGEST_NAME:
        fault = f"must be no more than {LONGEST_NAME} characters: {why}"
        yield invalid("metadata.name", name, fault)
