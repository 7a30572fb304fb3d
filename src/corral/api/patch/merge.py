"""Merge patches (RFC 7386): an object that looks like the target; null removes."""

from typing import Any

from corral.api.errors import BadRequest
from corral.api.object import Document


def merge_patch(document: Document, patch: Any) -> Document:
    """The document with a merge patch applied.

    Raises BadRequest where the patch is not an object: it would replace the whole document by
    something that is none.
    """
    if not isinstance(patch, dict):
        raise BadRequest("Invalid JSON Patch: a merge patch must be a JSON object")
    return _merged(document, patch)


def difference(before: Document, after: Document) -> Document:
    """The merge patch that makes one document of the other; empty where they are the same.

    What is in ``before`` alone becomes null, at any depth.  ``after`` has no nulls of its own.
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
