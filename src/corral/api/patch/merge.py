"""JSON merge patch (RFC 7386)."""

from typing import Any

from corral.api.errors import BadRequest
from corral.api.object import Document


def merge_patch(document: Document, patch: Any) -> Document:
    """Apply a merge patch.

    Raises BadRequest if the patch is not an object: it would replace the whole document.
    """
    if not isinstance(patch, dict):
        raise BadRequest("Invalid JSON Patch: a merge patch must be a JSON object")
    return _merged(document, patch)


def difference(before: Document, after: Document) -> Document:
    """Return the merge patch from one document to another; empty if they are equal.

    Members that are only in ``before`` become null, at any depth.  ``after`` must have no nulls.
    """
    patch: Document = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := difference(old, value):
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch


def _merged(target: Any, patch: Document) -> Document:
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key), value)
        else:
            merged[key] = value
    return merged
