"""Access to fields of a document by dotted paths."""

from typing import Any

from corral.api.kind import at
from corral.api.object import Document


def get(document: Document, path: str) -> Any:
    """Return the value of a field; None if it is missing."""
    return at(document, *path.split("."))


def put(document: Document, path: str, value: Any) -> None:
    """Set a field, and create missing objects above it."""
    *above, last = path.split(".")
    for name in above:
        if document.get(name) is None:
            document[name] = {}
        document = document[name]
    document[last] = value
